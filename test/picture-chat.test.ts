// Chats about pictures against transformers: what its processors make of pictures and prompts, and the answers.
import assert from 'node:assert/strict';
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { UnsupportedError } from '../src/base/errors.js';
import { readPicture } from '../src/media/pictures.js';
import { PictureChat } from '../src/models/index.js';
import { tensor, zeros } from '../src/tensor/create.js';
import type { Device } from '../src/tensor/device.js';
import type { Tensor } from '../src/tensor/tensor.js';
import { testDevices } from '../src/testing/devices.js';
import { chatFolder, chats, familyFolder, readers, skipChats } from './models-support.js';

const bytes = (image: string): Buffer => Buffer.from(image, 'base64');
/** What a model was given and what it answered, without an end. */
function listening(chat: PictureChat): { ids: number[]; pixels: number[]; answer: number[] } {
  const heard = { ids: [] as number[], pixels: [] as number[], answer: [] as number[] };
  const { model } = chat;
  const plain = model.answer.bind(model);
  model.answer = (ids, pixels, { end: _, ...options } = {}) => {
    const rows = plain(ids, pixels, options);
    heard.ids = (ids.toArray() as number[][])[0];
    heard.pixels = (pixels as Tensor).reshape([-1]).toArray() as number[];
    heard.answer = rows[0];
    return rows;
  };
  return heard;
}

for (const [name, { asks }] of Object.entries(chats))
  for (const [which, { images, ids, pixels, answer, text }] of Object.entries(asks))
    test(`a chat with ${name} about ${which}: the tokens, pixels and answer of transformers`, async () => {
      const chat = await PictureChat.load(chatFolder(name), { device: 'cpu' });
      const heard = listening(chat);
      const said = await chat.chat('w20 w31 w42', { images: images.map(bytes), maxTokens: answer.length });
      assert.deepEqual(heard.ids, ids);
      const kept = heard.pixels.filter((v) => v !== 0).filter((_, i) => i % 37 === 0);
      assert.equal(kept.length, pixels.length);
      kept.forEach((v, i) => assert.ok(Math.abs(v - pixels[i]) <= 2e-6, `pixel ${i}: ${v} is not ${pixels[i]}`));
      assert.deepEqual(heard.answer, answer);
      if (!answer.includes(2)) assert.equal(said, text.trim());
      chat.dispose();
    });

for (const { name: on, device, missing } of testDevices('cpu,sim:32'))
  for (const name of on === 'cpu' ? Object.keys(chats) : ['gemma3', 'qwen2_5_vl'].filter((n) => n in chats))
    test(`a chat with ${name} in bf16 on ${on}: the answer of f32, and no tensor is left`, {
      skip: missing,
    }, async () => {
      const { images, answer } = chats[name].asks.one;
      const talk = async (): Promise<number[]> => {
        const chat = await PictureChat.load(chatFolder(name), { device: device as Device, dtype: 'bf16' });
        const heard = listening(chat);
        await chat.chat('w20 w31 w42', { images: images.map(bytes), maxTokens: answer.length });
        chat.dispose();
        return heard.answer;
      };
      assert.deepEqual(await talk(), answer);
      const before = (device as Device).memory().liveBytes; // numbers that a device keeps are there now
      await talk();
      assert.ok((device as Device).memory().liveBytes <= before);
    });

test('messages, tensors and folders of newer make say the same', { skip: skipChats }, async () => {
  const { asks, files } = chats.smolvlm;
  const { images, ids, answer } = asks.one;
  const inside = files['preprocessor_config.json'];
  const dir = chatFolder('smolvlm', { 'processor_config.json': { image_processor: inside, image_seq_len: 4 } });
  rmSync(join(dir, 'preprocessor_config.json'));
  const chat = await PictureChat.load(dir, { device: 'cpu' });
  const heard = listening(chat);
  const { width, height, rgb } = readPicture(bytes(images[0]));
  const image = tensor(rgb, { shape: [height, width, 3], device: 'cpu' }).permute([2, 0, 1]);
  const content = [
    { type: 'image', image },
    { type: 'text', text: 'w20 w31 w42' },
  ];
  await chat.chat([{ role: 'user', content }], { maxTokens: answer.length });
  assert.deepEqual([heard.ids, heard.answer], [ids, answer]);
  chat.dispose();
});

test("sides halfway between two sizes go to the even one, as Python's round has it", { skip: skipChats }, async () => {
  const chat = await PictureChat.load(chatFolder('qwen2_vl'), { device: 'cpu' });
  const heard = listening(chat);
  // 22 / 4 is 5.5 and becomes 6, 18 / 4 is 4.5 and becomes 4: a token is 4 pixels wide.
  await chat.chat('w9', { images: [zeros([3, 22, 18], { dtype: 'u8', device: 'cpu' })], maxTokens: 1 });
  assert.equal(heard.ids.filter((id) => id === chat.model.imageToken).length, 6 * 4);
  chat.dispose();
});

test('what a chat about pictures does not take is refused by name', { skip: skipChats }, async () => {
  const chat = await PictureChat.load(chatFolder('llava'), { device: 'cpu' });
  const [image] = chats.llava.asks.one.images.map(bytes);
  await assert.rejects(chat.chat('w9 <image>', { images: [image] }), /2 places for pictures \(<image>\); 1 were given/);
  await assert.rejects(chat.chat('w9', { images: [tensor([1.5])] }), /a picture is u8 \(3, height, width\)/);
  await assert.rejects(chat.chat([{ role: 'user', content: [{ type: 'image' }] }]), /picture 0 .* has no image/);
  await assert.rejects(chat.chat([{ role: 'user', content: 'w9' }], { images: [image] }), /stand in their content/);
  chat.dispose();
  const own = chats.llava.files['preprocessor_config.json'] as object;
  const refused: [string, object, RegExp][] = [
    ['llava', { ...own, do_paint: true }, /do_paint is true/],
    ['llava', { ...own, image_processor_type: 'OtherImageProcessor' }, /the image processor Other is not known/],
    [
      'llava_next',
      { ...(chats.llava_next.files['preprocessor_config.json'] as object), do_resize: false },
      /do_resize/,
    ],
    ['qwen2_vl', { image_processor_type: 'Qwen2VLImageProcessor', max_pixels: 2 ** 40 }, /pixels; 100000000 are the/],
  ];
  for (const [name, json, message] of refused)
    await assert.rejects(
      PictureChat.load(chatFolder(name, { 'preprocessor_config.json': json }), { device: 'cpu' }),
      (e: Error) => e instanceof UnsupportedError && message.test(e.message),
    );
  await assert.rejects(PictureChat.load(familyFolder('llava', (f) => f, readers)), /tells of pictures/);
});

test("of Pixtral's words and sizes, what does not fit its model is refused by name", { skip: skipChats }, async () => {
  const { files, asks } = chats.mistral3;
  const [own, both] = ['preprocessor_config.json', 'processor_config.json'].map((name) => files[name] as object);
  const refused: [string, object, RegExp][] = [
    [
      'processor_config.json',
      { ...both, image_break_token: '[NONE]' },
      /image_break_token is \[NONE\], which the token/,
    ],
    ['processor_config.json', { ...both, image_token: 'w9' }, /image_token is w9, token 9; the model's .* is 70/],
    ['processor_config.json', { ...both, frames: 2 }, /frames is 2/],
    ['processor_config.json', { ...both, patch_size: { height: 4, width: 2 } }, /patch_size is 4 x 2; squares/],
    ['preprocessor_config.json', { ...own, do_center_crop: true }, /do_center_crop is true/],
    ['preprocessor_config.json', { ...own, do_resize: false }, /do_resize is false/],
    ['preprocessor_config.json', { ...own, size: { shortest_edge: 9 } }, /size is served as a longest_edge/],
  ];
  for (const [name, json, message] of refused)
    await assert.rejects(
      PictureChat.load(chatFolder('mistral3', { [name]: json }), { device: 'cpu' }),
      (e: Error) => e instanceof UnsupportedError && message.test(e.message),
    );
  const images = asks.one.images.map(bytes);
  const other: [object, RegExp][] = [
    [{ spatial_merge_size: 1 }, /a grid is \[5, 8\]; it must be .* both a multiple of 2/],
    [{ patch_size: 2 }, /patches have shape \[\d+, 12\]; by their grids they are \(\d+, 48\)/],
  ];
  for (const [more, message] of other) {
    const chat = await PictureChat.load(chatFolder('mistral3', { 'processor_config.json': { ...both, ...more } }), {
      device: 'cpu',
    });
    await assert.rejects(chat.chat('w9', { images }), message);
    await assert.rejects(chat.chat('w9', { images: [zeros([3, 1, 900], { dtype: 'u8' })] }), /no pixel is left/);
    chat.dispose();
  }
});

test('InternVL makes the tiles of the nearest shape, and more of them of larger pictures', {
  skip: skipChats,
}, async () => {
  const chat = await PictureChat.load(chatFolder('internvl'), { device: 'cpu' });
  const heard = listening(chat);
  // Height and width, and the tiles that transformers makes of them (get_optimal_tiled_canvas), the whole counted.
  const sizes: [number, number, number][] = [
    [40, 40, 5],
    [23, 23, 5],
    [22, 22, 1],
    [64, 20, 4],
    [12, 50, 5],
  ];
  for (const [height, width, tiles] of sizes) {
    await chat.chat('w9', { images: [zeros([3, height, width], { dtype: 'u8', device: 'cpu' })], maxTokens: 1 });
    assert.equal(heard.pixels.length, tiles * 3 * 16 * 16, `${height} x ${width}`);
  }
  chat.dispose();
  const own = chats.internvl.files['preprocessor_config.json'] as object;
  const words = chats.internvl.files['tokenizer.json'] as Record<string, any>;
  const other = JSON.parse(JSON.stringify(words).replaceAll('</img>', '</other>')) as object;
  const refused: [string, object, RegExp][] = [
    ['preprocessor_config.json', { ...own, size: { height: 16, width: 8 } }, /size is served as height and width/],
    ['preprocessor_config.json', { ...own, max_patches: 2 ** 30 }, /max_patches is 1073741824 of 16 x 16 pixels/],
    ['preprocessor_config.json', { ...own, do_resize: false }, /do_resize is false/],
    ['preprocessor_config.json', { ...own, do_pad: true }, /do_pad is true/],
    ['tokenizer.json', other, /the tokenizer has no token <\/img>/],
  ];
  for (const [name, json, message] of refused)
    await assert.rejects(
      PictureChat.load(chatFolder('internvl', { [name]: json }), { device: 'cpu' }),
      (e: Error) => e instanceof UnsupportedError && message.test(e.message),
    );
});

test('Llama 3.2 takes the shape of tiles that enlarges a picture least', { skip: skipChats }, async () => {
  const chat = await PictureChat.load(chatFolder('mllama'), { device: 'cpu' });
  let places: unknown;
  const plain = chat.model.answer.bind(chat.model);
  chat.model.answer = (ids, pixels, options) => {
    ({ places } = options ?? {});
    return plain(ids, pixels, options);
  };
  // Height and width, and the number of the shape and its tiles (get_optimal_tiled_canvas of transformers).
  const sizes: [number, number, number, number][] = [
    [16, 16, 1, 1],
    [10, 40, 3, 3],
    [50, 60, 6, 4],
    [17, 9, 5, 2],
    [200, 20, 8, 4],
    [16, 17, 2, 2],
    [1, 300, 4, 4],
  ];
  for (const [height, width, ...place] of sizes) {
    await chat.chat('w9', { images: [zeros([3, height, width], { dtype: 'u8', device: 'cpu' })], maxTokens: 1 });
    assert.deepEqual(places, [place], `${height} x ${width}`);
  }
  chat.dispose();
  const own = chats.mllama.files['preprocessor_config.json'] as object;
  const refused: [object, RegExp][] = [
    [{ ...own, size: { height: 16, width: 8 } }, /size is served as height and width/],
    [{ ...own, max_image_tiles: 2 ** 30 }, /max_image_tiles is 1073741824 of 16 x 16 pixels/],
    [{ ...own, do_pad: false }, /do_pad is false/],
    [{ ...own, do_resize: false }, /do_resize is false/],
  ];
  for (const [json, message] of refused)
    await assert.rejects(
      PictureChat.load(chatFolder('mllama', { 'preprocessor_config.json': json }), { device: 'cpu' }),
      (e: Error) => e instanceof UnsupportedError && message.test(e.message),
    );
});
