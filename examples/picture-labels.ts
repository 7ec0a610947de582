// Which text fits a picture best: CLIP or SigLIP, with labels of your own and no training.
//   node dist/examples/picture-labels.js MODEL PICTURE LABEL...
// MODEL is a folder or a name such as openai/clip-vit-base-patch32; PICTURE is a PNG or JPEG file.
import { ImageTextModel } from 'wick/models';

const [name, picture, ...labels] = process.argv.slice(2);
if (labels.length === 0) {
  console.error('usage: picture-labels MODEL PICTURE LABEL...');
  process.exit(2);
}
const model = await ImageTextModel.load(name);
const [scores] = await model.scores([picture], labels);
const order = labels.map((_, i) => i).sort((a, b) => scores[b] - scores[a]);
for (const i of order) console.log(`${(100 * scores[i]).toFixed(1).padStart(5)} %  ${labels[i]}`);
