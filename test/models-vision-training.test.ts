// Networks that see are trainable: each parameter of each golden model has a gradient, and all of them together say how
// the answer changes along them.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { loadModel } from '../src/models/load.js';
import type { VisionModel } from '../src/models/vision/vision-model.js';
import { enableGrad, noGrad } from '../src/tensor/autograd.js';
import { scope } from '../src/tensor/scope.js';
import type { Tensor } from '../src/tensor/tensor.js';
import { answerOf, familyFolder, seeing } from './models-support.js';

/** A classifier of each type. */
const CLASSIFIERS = Object.entries(seeing).filter(([name]) => name.endsWith('-c'));

for (const [name] of CLASSIFIERS)
  test(`${name}: gradients of all parameters`, () =>
    scope(() => {
      const dir = familyFolder(name, (f) => f, seeing);
      const { model } = loadModel<VisionModel>(dir, { kind: 'vision', device: 'cpu', dtype: 'f64' });
      model.requireGrad();
      const pixels = answerOf(name, 'pixels', 'vision').cast('f64');
      const answer = (): Tensor => model.forward(pixels).sqr().sum();
      const grads = enableGrad(answer).backward();
      const named = [...model.namedParameters()];
      // What makes one vector of a picture to compare with texts is no part of a class.
      const idle = /^tower\.(pool\.|post_norm\.)/;
      const without = named.filter(([key, p]) => !grads.get(p) && !idle.test(key)).map(([key]) => key);
      assert.deepEqual(without, [], 'parameters without a gradient');
      const slopes = new Map(
        named.flatMap(([key, p]) => (grads.get(p) ? [[key, grads.get(p) as Tensor] as const] : [])),
      );
      const length = Math.sqrt([...slopes.values()].reduce((sum, g) => sum + g.sqr().sum().item(), 0));
      const step = 1e-6;
      const moved = (by: number): number =>
        noGrad(() => {
          model.replace((p, key) => {
            const g = slopes.get(key);
            return g ? p.add(g.affine(by / length, 0)) : p;
          });
          return answer().item();
        });
      const [ahead, behind] = [moved(step), moved(-2 * step)];
      const slope = (ahead - behind) / (2 * step);
      assert.ok(Math.abs(slope - length) <= 1e-4 * length, `${slope} along gradients of length ${length}`);
      model.dispose();
    }));
