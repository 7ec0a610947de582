// A line through noisy points, found by gradient descent: node dist/examples/linear-regression.js
import { Generator, randn, scope, Tensor } from 'wick';
import { Linear, losses, SGD } from 'wick/nn';

const generator = new Generator(1);
const truth = { weight: Tensor.from([[2, -3, 0.5]]), bias: Tensor.from([4]) };
const x = randn([256, 3], { generator });
const y = x
  .matmul(truth.weight.t())
  .add(truth.bias)
  .add(randn([256, 1], { generator, std: 0.1 }));

const model = new Linear(3, 1, { generator });
const optimizer = new SGD(model.parameters(), { learningRate: 0.1, momentum: 0.5 });

for (let step = 1; step <= 100; step++) {
  scope(() => {
    const loss = losses.mse(model.forward(x), y);
    optimizer.backwardStep(loss);
    if (step % 20 === 0) console.log(`step ${step}: loss ${loss.item().toFixed(5)}`);
  });
}
console.log(`weight ${model.weight}\nbias ${model.bias}`);
