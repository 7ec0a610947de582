"""Writes test/golden/families/prompted.*, small models that are asked about pictures (by points and boxes, by words) run
by transformers, and prompted-seen.json.br, what they and their processors make of a picture:
python scripts/golden-prompted.py [NAME...]"""
import base64, importlib, io, json, os, sys, tempfile
scenes = importlib.import_module('golden-scenes')
import numpy as np, torch  # noqa: E402
from transformers import AutoModelForMaskGeneration, AutoModelForZeroShotObjectDetection  # noqa: E402
from transformers import AutoModel, CLIPSegForImageSegmentation  # noqa: E402

families, pictures = scenes.families, scenes.pictures
SAM = dict(
    vision_config=dict(hidden_size=32, num_hidden_layers=3, num_attention_heads=4, image_size=32, patch_size=4,
                       window_size=3, global_attn_indexes=[1], output_channels=16, num_pos_feats=8, mlp_ratio=1.5),
    prompt_encoder_config=dict(hidden_size=16, image_size=32, patch_size=4, mask_input_channels=8),
    mask_decoder_config=dict(hidden_size=16, num_attention_heads=2, mlp_dim=24, iou_head_hidden_dim=12))
SAM_B = dict(
    vision_config=dict(SAM['vision_config'], window_size=4, qkv_bias=False, use_abs_pos=False, use_rel_pos=False,
                       hidden_act='relu', layer_norm_eps=1e-2, mlp_dim=40),
    prompt_encoder_config=dict(SAM['prompt_encoder_config'], hidden_act='relu', layer_norm_eps=1e-2),
    mask_decoder_config=dict(SAM['mask_decoder_config'], hidden_act='gelu', attention_downsample_rate=4,
                             num_hidden_layers=3, num_multimask_outputs=2, iou_head_depth=4, layer_norm_eps=1e-2))
# Words of a small vocabulary, and texts between a beginning and an end, which is the largest number.
WORDS = ['<pad>', *'a photo of the cat dog on mat red'.split(), '<s>', '</s>']
TEXTS = ['a photo of the cat', 'red mat', 'dog']
SPOKEN = dict(vocab_size=12, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
              max_position_embeddings=10, pad_token_id=0, bos_token_id=10, eos_token_id=11)
TOWER = dict(hidden_size=32, intermediate_size=40, num_hidden_layers=4, num_attention_heads=4, image_size=32, patch_size=8)
WORDED = dict(text_config=SPOKEN, vision_config=TOWER, projection_dim=16)
SHAPED = dict(WORDED, projection_dim=20, extract_layers=[1, 3], reduce_dim=12, decoder_num_attention_heads=2,
              decoder_intermediate_size=20)
NAFLEX = dict(text_config=dict(SPOKEN, hidden_size=32),
              vision_config=dict(hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
                                 patch_size=4, num_patches=16))
PROMPTED = {
    AutoModel: {
        'siglip2': ('siglip2', NAFLEX),
        # The end of texts is a number that words have in others.
        'chinese_clip': ('chinese_clip', dict(WORDED, text_config=dict(SPOKEN, hidden_act='relu',
                                                                       layer_norm_eps=1e-3))),
        'metaclip_2': ('metaclip_2', dict(WORDED, text_config=dict(SPOKEN, eos_token_id=2))),
    },
    AutoModelForMaskGeneration: {'sam': ('sam', SAM), 'sam-b': ('sam', SAM_B)},
    AutoModelForZeroShotObjectDetection: {
        'owlvit': ('owlvit', WORDED),
        'owlv2': ('owlv2', dict(WORDED, vision_config=dict(TOWER, hidden_act='gelu', layer_norm_eps=1e-2))),
    },
    CLIPSegForImageSegmentation: {
        'clipseg': ('clipseg', SHAPED),
        'clipseg-b': ('clipseg', dict(SHAPED, text_config=dict(SPOKEN, eos_token_id=2), extract_layers=[0, 1, 2],
                                      conditional_layer=2, use_complex_transposed_convolution=True,
                                      vision_config=dict(TOWER, layer_norm_eps=1e-2))),
    },
}
# Things that are asked for, in pixels of the picture that the model takes.
POINTS = [[[3.0, 20.5], [17.0, 9.0]], [[30.0, 1.0], [12.5, 12.5]]]
ON = [[1, 0], [1, 1]]
BOXES = [[4.0, 2.0, 20.0, 30.0], [0.0, 11.0, 31.0, 13.5]]


def masks_of(model, seed):
    g = torch.Generator().manual_seed(seed)
    pixels, rough = torch.randn(1, 3, 32, 32, generator=g), torch.randn(1, 1, 32, 32, generator=g)
    points, on, boxes = torch.tensor([POINTS]), torch.tensor([ON]), torch.tensor([BOXES])
    asks = {
        'points': dict(input_points=points, input_labels=on), 'boxes': dict(input_boxes=boxes),
        'both': dict(input_points=points, input_labels=on, input_boxes=boxes), 'nothing': {},
        'rough': dict(input_points=points[:, :1], input_labels=on[:, :1], input_masks=rough, multimask_output=False),
    }
    found = {'pixels': pixels, 'rough': rough}
    with torch.no_grad():
        for name, given in asks.items():
            out = model(pixels, **given)
            found[f'{name}/masks'], found[f'{name}/scores'] = out.pred_masks[0], out.iou_scores[0]
    return found


def spoken():
    """Numbers of the texts' words, and where they are."""
    rows = [[10, *(WORDS.index(w) for w in text.split()), 11] for text in TEXTS]
    time = max(map(len, rows))
    ids = torch.tensor([row + [0] * (time - len(row)) for row in rows])
    return dict(input_ids=ids, attention_mask=(ids > 0).long())


def things_of(model, seed):
    pixels = torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        out = model(pixel_values=pixels, **spoken())
    found = {'pixels': pixels, 'ids': spoken()['input_ids'], 'mask': spoken()['attention_mask'],
             'logits': out.logits, 'boxes': out.pred_boxes}
    if 'objectness_logits' in out:
        found['things'] = out.objectness_logits
    return found


def shapes_of(model, seed):
    g = torch.Generator().manual_seed(seed)
    pixels, other = torch.randn(1, 3, 48, 48, generator=g), torch.randn(1, 3, 32, 32, generator=g)
    with torch.no_grad():
        out = model(pixel_values=pixels.expand(len(TEXTS), -1, -1, -1), **spoken())
        like = model(pixel_values=pixels, conditional_pixel_values=other)
    return {'pixels': pixels, 'other': other, 'ids': spoken()['input_ids'], 'mask': spoken()['attention_mask'],
            'logits': out.logits, 'like': like.logits}


def flat(pixels):
    """A picture's patches, of four by four places each, and how many there are down and across."""
    _, _, h, w = pixels.shape
    cut = pixels.reshape(3, h // 4, 4, w // 4, 4).permute(1, 3, 2, 4, 0).reshape(1, h * w // 16, 48)
    return dict(pixel_values=cut, pixel_attention_mask=torch.ones(1, cut.shape[1]).long(),
                spatial_shapes=torch.tensor([[h // 4, w // 4]]))


def padded():
    ids = spoken()['input_ids']
    return torch.nn.functional.pad(ids, (0, SPOKEN['max_position_embeddings'] - ids.shape[1]))


def likeness_of(model, seed):
    if model.config.model_type in ('metaclip_2', 'chinese_clip'):
        pixels = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(seed))
        ids = torch.tensor([[10, 1, 5, 2, 0, 0], [10, 7, 2, 11, 0, 0]])
        with torch.no_grad():
            out = model(input_ids=ids, attention_mask=(ids > 0).long(), pixel_values=pixels)
        return {'pixels': pixels, 'ids': ids, 'mask': (ids > 0).long(), 'logits': out.logits_per_image}
    g = torch.Generator().manual_seed(seed)
    found = {'ids': padded()}
    for name, size in dict(wide=(12, 24), tall=(16, 8), learnt=(16, 16)).items():
        pixels = torch.randn(1, 3, *size, generator=g)
        with torch.no_grad():
            out = model(input_ids=padded(), **flat(pixels))
        found.update({f'{name}/pixels': pixels, f'{name}/logits': out.logits_per_image, 'texts': out.text_embeds})
    return found


ANSWERS = {AutoModel: likeness_of, AutoModelForMaskGeneration: masks_of, AutoModelForZeroShotObjectDetection: things_of,
           CLIPSegForImageSegmentation: shapes_of}


def answers_of(make):
    def answers(model, _, seed):
        found = ANSWERS[make](model, seed)
        return {k: v.numpy().astype(np.int32 if v.dtype == torch.int64 else np.float32) for k, v in found.items()}
    return answers


def masks_seen(model, picture):
    transformers = pictures.transformers
    fields = dict(size=dict(longest_edge=30), pad_size=dict(height=32, width=32))
    processor = transformers.SamImageProcessorPil(**fields)
    whole = transformers.SamProcessor(processor)
    point, box = [[[11, 30], [40, 8]]], [[[5.0, 3.5, 33.0, 29.0]]]
    found = []
    for asked in (dict(input_points=point, input_labels=[[1, 0]]), dict(input_boxes=box)):
        given = whole(picture, return_tensors='pt', **asked)
        with torch.no_grad():
            out = model(**{k: v.float() if v.is_floating_point() else v for k, v in given.items()
                           if not k.endswith('sizes')})
        masks = processor.post_process_masks(out.pred_masks, given['original_sizes'], given['reshaped_input_sizes'])[0]
        found.append({'scores': out.iou_scores[0, 0].tolist(),
                      'masks': [''.join(str(int(v)) for v in mask.flatten()) for mask in masks[0]]})
    values = given['pixel_values']
    return {'file': {**fields, 'image_processor_type': 'SamImageProcessor'}, 'shape': list(values.shape),
            'pixels': values.flatten().tolist()[::37], 'answer': found}


def things_seen(kind, fields):
    def see(model, picture):
        processor = getattr(pictures.transformers, f'{kind}ImageProcessorPil')(**fields)
        pixels = processor(picture, return_tensors='pt')['pixel_values']
        with torch.no_grad():
            out = model(pixel_values=pixels, **spoken())
        size = [(picture.height, picture.width)]
        found = processor.post_process_object_detection(out, threshold=0.0, target_sizes=size)[0]
        return {'file': {**fields, 'image_processor_type': f'{kind}ImageProcessor'}, 'shape': list(pixels.shape),
                'pixels': pixels.flatten().tolist()[::37], 'words': WORDS, 'texts': TEXTS,
                'answer': {k: v.tolist() for k, v in found.items()}}
    return see


def shapes_seen(model, picture):
    fields = dict(size=dict(height=40, width=40))
    pixels = pictures.transformers.ViTImageProcessorPil(**fields)(picture, return_tensors='pt')['pixel_values']
    with torch.no_grad():
        out = model(pixel_values=pixels.expand(len(TEXTS), -1, -1, -1), **spoken())
    size = (picture.height, picture.width)
    shares = torch.nn.functional.interpolate(out.logits[:, None], size, mode='bilinear').sigmoid()
    return {'file': {**fields, 'image_processor_type': 'ViTImageProcessor'}, 'shape': list(pixels.shape),
            'pixels': pixels.flatten().tolist()[::37], 'words': WORDS, 'texts': TEXTS,
            'answer': [row.flatten()[::37].tolist() for row in shares]}


def likeness_seen(model, picture):
    fields = dict(patch_size=4, max_num_patches=20)
    given = pictures.transformers.Siglip2ImageProcessorPil(**fields)(picture, return_tensors='pt')
    h, w = given['spatial_shapes'][0].tolist()
    pixels = given['pixel_values'][0, :h * w].reshape(h, w, 4, 4, 3).permute(4, 0, 2, 1, 3).reshape(1, 3, 4 * h, 4 * w)
    with torch.no_grad():
        out = model(input_ids=padded(), **given)
    return {'file': {**fields, 'image_processor_type': 'Siglip2ImageProcessor'}, 'shape': list(pixels.shape),
            'pixels': pixels.flatten().tolist()[::37], 'words': WORDS, 'texts': TEXTS,
            'answer': out.logits_per_image.sigmoid()[0].tolist()}


SQUARE = dict(height=32, width=32)
SEEN = {'siglip2': likeness_seen, 'sam': masks_seen, 'owlvit': things_seen('OwlViT', dict(size=SQUARE)),
        'owlv2': things_seen('Owlv2', dict(size=SQUARE)), 'clipseg': shapes_seen}


def seen(name):
    """A picture through a processor, a model and what the processor makes of its answers."""
    make = next(m for m, table in PROMPTED.items() if name in table)
    packed = open(os.path.join(families.GOLDEN, 'prompted.json.br'), 'rb').read()
    spec = json.loads(families.node('brotliDecompressSync', packed))['models'][name]
    with tempfile.TemporaryDirectory() as at:
        json.dump(spec['config'], open(os.path.join(at, 'config.json'), 'w'))
        tensors = {k: families.made(s) for k, s in spec['tensors'].items()}
        families.save_file(tensors, os.path.join(at, 'model.safetensors'), metadata={'format': 'pt'})
        model = make.from_pretrained(at, dtype=torch.float32).eval()
    picture = families.painted(53, 37, 7)
    file = io.BytesIO()
    picture.save(file, 'PNG')
    return {'picture': base64.b64encode(file.getvalue()).decode(), **SEEN[name](model, picture)}


def main():
    for make, table in PROMPTED.items():
        names = [n for n in table if not sys.argv[1:] or n in sys.argv[1:]]
        if names:
            families.run('prompted', table, {}, names, make, answers_of(make))
    text = json.dumps({n: seen(n) for n in SEEN}, separators=(',', ':')).encode()
    open(os.path.join(families.GOLDEN, 'prompted-seen.json.br'), 'wb').write(families.node('brotliCompressSync', text))


if __name__ == '__main__':
    main()
