// `node dist/scripts/launches.js`: writes down what plans launch, for test/launches.test.ts, after a change that is
// meant.
import { writeLines } from '../test/launch-lines.js';

console.log(`test/launches.txt.br: ${await writeLines()} lines`);
