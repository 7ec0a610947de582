// Questions about a picture: Qwen-VL, SmolVLM, LLaVA, Gemma 3 and others.
//   node dist/examples/picture-chat.js MODEL PICTURE QUESTION... [--max-tokens N]
// MODEL is a folder or a name such as HuggingFaceTB/SmolVLM-256M-Instruct; PICTURE is a PNG or JPEG file.
import { parseArgs } from 'node:util';
import { PictureChat } from 'wick/models';

const { values: v, positionals } = parseArgs({
  allowPositionals: true,
  options: { 'max-tokens': { type: 'string', default: '200' } },
});
const [name, picture, ...questions] = positionals;
if (questions.length === 0) {
  console.error('usage: picture-chat MODEL PICTURE QUESTION... [--max-tokens N]');
  process.exit(2);
}
const model = await PictureChat.load(name, { dtype: 'f32' });
const messages: { role: string; content: unknown }[] = [];
for (const text of questions) {
  // The picture stands before the first question; the model sees all that was said so far.
  const image = messages.length === 0 ? [{ type: 'image', image: picture }] : [];
  messages.push({ role: 'user', content: [...image, { type: 'text', text }] });
  const answer = await model.chat(messages, { maxTokens: Number(v['max-tokens']) });
  messages.push({ role: 'assistant', content: [{ type: 'text', text: answer }] });
  console.log(`> ${text}\n${answer}`);
}
