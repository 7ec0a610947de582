// A config's lists of kinds: what no family serves is refused by field, value and rule.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FormatError, UnsupportedError } from '../src/base/errors.js';
import { Config } from '../src/models/files/config.js';

const KNOWN = ['full_attention', 'linear_attention'];
const check = (list: readonly string[], layers?: number): void => {
  const c = new Config({ layer_types: list }, 'config.json');
  c.onlyKinds('layer_types', c.texts('layer_types'), KNOWN, layers);
};

test('a list of known kinds passes, one for each layer or more', () => {
  check(KNOWN);
  check(KNOWN, 2);
  check([...KNOWN, 'full_attention'], 2);
});
test('a kind that is not known is refused with those that are', () => {
  assert.throws(() => check(['full_attention', 'sideways']), {
    name: UnsupportedError.name,
    message: 'config.json: layer_types holds "sideways"; "full_attention" and "linear_attention" are served',
  });
});
test('fewer kinds than layers are refused with both numbers', () => {
  for (const [list, layers] of [
    [KNOWN, 3],
    [[], 1],
  ] as const)
    assert.throws(() => check(list, layers), {
      name: FormatError.name,
      message: `config.json: layer_types has ${list.length} entries for ${layers} layers`,
    });
});
