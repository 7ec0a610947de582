"""Writes test/golden/families/grounded.*, small models that find what texts name run by transformers, and
grounded-seen.json.br, what one and its processor make of a picture: python scripts/golden-grounded.py"""
import base64, importlib, io, json, os, re, tempfile
scenes = importlib.import_module('golden-scenes')
import numpy as np, torch  # noqa: E402
from transformers import AutoModelForZeroShotObjectDetection, BertTokenizerFast, GroundingDinoProcessor  # noqa: E402

from transformers.models.grounding_dino import modeling_grounding_dino  # noqa: E402

# Of words' positions, which are whole numbers, transformers 5.18 rounds sines to whole numbers, too. The models were
# trained with the sines themselves, and earlier versions take these.
own_sines = modeling_grounding_dino.encode_sinusoidal_position_embedding
modeling_grounding_dino.encode_sinusoidal_position_embedding = lambda at, **more: own_sines(at.float(), **more)
families = scenes.families
own_spec = families.spec_of


def spec_of(name, t, seed):
    if name.endswith('relative_position_index'):
        return None
    spec = own_spec(name, t, seed)
    if name.endswith('sampling_offsets.weight'):  # which would make much of the last bit of a number
        spec[2] *= 0.15
    if name.endswith(('vision_param', 'text_param')):
        spec[3] = 0.4
    if re.search(r'layer_norm|LayerNorm|_norm', name) and name.endswith('.weight'):
        spec[3] = 1.0
    if name.startswith('model.decoder.layer_norm.'):  # scores that are neither 0 nor 1
        spec[2], spec[3] = 0.05, 0.1 if name.endswith('weight') else 0
    return spec


families.spec_of = spec_of
SWIN = dict(model_type='swin', image_size=64, patch_size=4, embed_dim=8, depths=[1, 1, 2, 1], num_heads=[2, 2, 4, 4],
            window_size=4, out_features=['stage2', 'stage3', 'stage4'])
TEXT = dict(model_type='bert', vocab_size=1040, hidden_size=24, num_hidden_layers=2, num_attention_heads=4,
            intermediate_size=40, max_position_embeddings=40)
DINO = dict(backbone_config=SWIN, text_config=TEXT, num_queries=9, d_model=64, encoder_layers=2, decoder_layers=3,
            encoder_ffn_dim=40, decoder_ffn_dim=36, encoder_attention_heads=4, decoder_attention_heads=2, max_text_len=20,
            encoder_n_points=2, decoder_n_points=3)
MODELS = {
    'grounding-dino': ('grounding-dino', DINO),
    'grounding-dino-b': ('grounding-dino', dict(
        DINO, d_model=32, position_embedding_type='learned', decoder_bbox_embed_share=False,
        num_feature_levels=3, activation_function='gelu', layer_norm_eps=1e-3, decoder_layers=2, encoder_layers=1)),
}


def answers(model, _, seed):
    g = torch.Generator().manual_seed(seed)
    pixels = torch.randn(2, 3, 48, 64, generator=g)
    ids = torch.tensor([[101, 7, 1012, 300, 41, 9, 1012, 77, 1029, 102], [101, 500, 6, 1012, 12, 1012, 102, 0, 0, 0]])
    mask = (ids != 0).long()
    with torch.no_grad():
        out = model(pixel_values=pixels, input_ids=ids, attention_mask=mask)
    logits = out.logits[:, :, :10].clone()
    logits[logits == -torch.inf] = -1000
    found = {'pixels': pixels, 'input_ids': ids, 'attention_mask': mask, 'logits': logits, 'boxes': out.pred_boxes}
    return {k: v.numpy().astype(np.float32 if v.is_floating_point() else np.int32) for k, v in found.items()}


WORDS = {101: '[CLS]', 102: '[SEP]', 0: '[PAD]', 100: '[UNK]', 103: '[MASK]', 1012: '.', 1029: '?', 200: 'a', 201: 'red',
         202: 'cat', 203: '##s', 204: 'dog', 205: 'the'}


def seen(name):
    packed = open(os.path.join(families.GOLDEN, 'grounded.json.br'), 'rb').read()
    spec = json.loads(families.node('brotliDecompressSync', packed))['models'][name]
    with tempfile.TemporaryDirectory() as at:
        json.dump(spec['config'], open(os.path.join(at, 'config.json'), 'w'))
        tensors = {k: families.made(s) for k, s in spec['tensors'].items()}
        families.save_file(tensors, os.path.join(at, 'model.safetensors'), metadata={'format': 'pt'})
        model = AutoModelForZeroShotObjectDetection.from_pretrained(at, dtype=torch.float32).eval()
        words = [WORDS.get(i, f'w{i}') for i in range(1040)]
        open(os.path.join(at, 'vocab.txt'), 'w').write('\n'.join(words))
        tokenizer = BertTokenizerFast(vocab={w: i for i, w in enumerate(words)})
        tokenizer.save_pretrained(at)
        files = {n: json.load(open(os.path.join(at, n))) for n in ('tokenizer.json', 'tokenizer_config.json')}
    fields = dict(size=dict(shortest_edge=70, longest_edge=100))
    images = scenes.pictures.transformers.GroundingDinoImageProcessorPil(**fields)
    texts = ['A red cats', 'the dog']
    text = '. '.join(t.lower() for t in texts) + '.'
    picture = families.painted(53, 37, 7)
    tokens = tokenizer(text, return_tensors='pt')
    pixels = images(picture, return_tensors='pt')['pixel_values']
    with torch.no_grad():
        out = model(pixel_values=pixels, **tokens)
    after = GroundingDinoProcessor.__new__(GroundingDinoProcessor)
    after.tokenizer = tokenizer
    sure = out.logits.sigmoid().max(-1).values[0].sort(descending=True).values
    threshold = float(sure[4] + sure[5]) / 2
    fit = out.logits.sigmoid()[0].flatten().sort(descending=True).values
    words = float(fit[25] + fit[26]) / 2
    found = after.post_process_grounded_object_detection(out, tokens['input_ids'], threshold=threshold, text_threshold=words,
                                                         target_sizes=[(picture.height, picture.width)])[0]
    file = io.BytesIO()
    picture.save(file, 'PNG')
    files['preprocessor_config.json'] = {**fields, 'image_processor_type': 'GroundingDinoImageProcessor'}
    return {'files': files, 'picture': base64.b64encode(file.getvalue()).decode(), 'texts': texts,
            'ids': tokens['input_ids'][0].tolist(), 'scores': found['scores'].tolist(), 'boxes': found['boxes'].tolist(),
            'labels': found['text_labels'], 'rules': dict(threshold=threshold, wordThreshold=words), 'shape': list(pixels.shape)}


def main():
    families.run('grounded', MODELS, {}, list(MODELS), AutoModelForZeroShotObjectDetection, answers)
    text = json.dumps({'grounding-dino': seen('grounding-dino')}, separators=(',', ':')).encode()
    open(os.path.join(families.GOLDEN, 'grounded-seen.json.br'), 'wb').write(families.node('brotliCompressSync', text))


if __name__ == '__main__':
    main()
