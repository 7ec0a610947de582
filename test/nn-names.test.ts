// The table of candle-nn's names is true: what it says is ours is there, and the page is the table's.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Tensor } from '../src/index.js';
import * as nn from '../src/nn/index.js';
import { CANDLE_NAMES } from '../src/nn/names.js';

test('every name the table calls ours is an export of wick/nn or a method of Tensor', () => {
  for (const { ours, names, note } of CANDLE_NAMES) {
    for (const name of ours.split(' ').filter(Boolean))
      assert.ok(name.startsWith('.') ? name.slice(1) in Tensor.prototype : name in nn, `${name}, for ${names}`);
    assert.ok(ours || note, `${names}: neither an answer nor a reason`);
  }
});
