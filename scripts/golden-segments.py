"""Writes test/golden/families/segments.*, small models that answer with masks run by transformers, and
segments-seen.json.br, what they and their processors make of a picture: python scripts/golden-segments.py [NAME...]"""
import base64, importlib, io, json, os, re, sys, tempfile
scenes = importlib.import_module('golden-scenes')
import numpy as np, torch  # noqa: E402
from transformers import AutoModelForUniversalSegmentation  # noqa: E402

families = scenes.families
own_spec = families.spec_of


def spec_of(name, t, seed):
    """Masks are not so sure that all sigmoids are 0 or 1."""
    spec = own_spec(name, t, seed)
    if spec is not None and re.search(r'mask_embedder\.2\.0\.', name):
        spec[2] *= 0.1
    return spec


families.spec_of = spec_of
SWIN = dict(model_type='swin', image_size=64, patch_size=4, embed_dim=8, depths=[1, 2, 1, 1], num_heads=[2, 2, 4, 4],
            window_size=4, out_features=['stage1', 'stage2', 'stage3', 'stage4'])
RESNET = dict(model_type='resnet', hidden_sizes=[8, 12, 16, 20], depths=[1, 1, 2, 1], embedding_size=8,
              out_features=['stage1', 'stage2', 'stage3', 'stage4'])
MASK2 = dict(backbone_config=SWIN, feature_size=32, mask_feature_size=24, hidden_dim=32, encoder_feedforward_dim=40,
             encoder_layers=2, decoder_layers=5, num_attention_heads=4, dim_feedforward=36, num_queries=7, num_labels=3)
DECODER = dict(model_type='detr', d_model=24, decoder_layers=2, decoder_attention_heads=4, decoder_ffn_dim=40,
               num_queries=6, encoder_layers=1)
MASK1 = dict(backbone_config=SWIN, fpn_feature_size=32, mask_feature_size=24, decoder_config=DECODER, num_labels=3)
MODELS = {
    'maskformer': ('maskformer', MASK1),
    'maskformer-b': ('maskformer', dict(MASK1, backbone_config=RESNET, mask_feature_size=32, num_labels=2, decoder_config=dict(
        DECODER, d_model=20, decoder_layers=1, activation_function='gelu', num_queries=4))),
    'mask2former': ('mask2former', MASK2),
    'mask2former-b': ('mask2former', dict(MASK2, backbone_config=RESNET, activation_function='gelu', common_stride=8,
                                          encoder_layers=1, decoder_layers=2, num_queries=4, mask_feature_size=32)),
}


def answers(model, _, seed):
    pixels = torch.randn(2, 3, 48, 64, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        out = model(pixels)
    found = {'pixels': pixels, 'classes': out.class_queries_logits, 'masks': out.masks_queries_logits}
    return {k: v.numpy().astype(np.float32) for k, v in found.items()}


PROCESSORS = {
    'maskformer': ('MaskFormerImageProcessor', dict(size=dict(shortest_edge=60, longest_edge=90), size_divisor=32)),
    'mask2former': ('Mask2FormerImageProcessor', dict(size=dict(shortest_edge=40, longest_edge=90), size_divisor=16)),
    'mask2former-b': ('Mask2FormerImageProcessor', dict(size=dict(height=64, width=64), ignore_index=255,
                                                        do_reduce_labels=True)),
}


def seen(name):
    kind, fields = PROCESSORS[name]
    packed = open(os.path.join(families.GOLDEN, 'segments.json.br'), 'rb').read()
    spec = json.loads(families.node('brotliDecompressSync', packed))['models'][name]
    with tempfile.TemporaryDirectory() as at:
        json.dump(spec['config'], open(os.path.join(at, 'config.json'), 'w'))
        tensors = {k: families.made(s) for k, s in spec['tensors'].items()}
        families.save_file(tensors, os.path.join(at, 'model.safetensors'), metadata={'format': 'pt'})
        model = AutoModelForUniversalSegmentation.from_pretrained(at, dtype=torch.float32).eval()
    picture = families.painted(53, 37, 7)
    processor = getattr(scenes.pictures.transformers, f'{kind}Pil')(**fields)
    pixels = processor(picture, return_tensors='pt')['pixel_values']
    with torch.no_grad():
        out = model(pixels)
    size = [(picture.height, picture.width)]
    file = io.BytesIO()
    picture.save(file, 'PNG')
    things = processor.post_process_instance_segmentation(out, threshold=0.0, target_sizes=size, return_binary_maps=True)[0]
    whole = {}
    for key, more in (('plain', {}), ('fused', dict(label_ids_to_fuse={0, 1, 2}))):
        found = processor.post_process_panoptic_segmentation(out, threshold=0.2, mask_threshold=0.1, target_sizes=size,
                                                             overlap_mask_area_threshold=0.05, **more)[0]
        whole[key] = {'map': found['segmentation'].flatten().int().tolist(), 'segments': found['segments_info']}
    return {'file': {**fields, 'image_processor_type': kind}, 'picture': base64.b64encode(file.getvalue()).decode(),
            'shape': list(pixels.shape), 'pixels': pixels.flatten().tolist()[::37],
            'semantic': processor.post_process_semantic_segmentation(out, target_sizes=size)[0].flatten().tolist(),
            'things': [{'score': s['score'], 'id': s['label_id'], 'area': int(m.sum()), 'places': int((
                m.flatten() * torch.arange(m.numel())).sum())} for s, m in zip(things['segments_info'], things['segmentation'])],
            **whole}


def main():
    names = [n for n in MODELS if not sys.argv[1:] or n in sys.argv[1:]]
    families.run('segments', MODELS, {}, names, AutoModelForUniversalSegmentation, answers)
    at = os.path.join(families.GOLDEN, 'segments-seen.json.br')
    known = json.loads(families.node('brotliDecompressSync', open(at, 'rb').read())) if sys.argv[1:] else {}
    known |= {n: seen(n) for n in PROCESSORS if n in names}
    open(at, 'wb').write(families.node('brotliCompressSync', json.dumps(known, separators=(',', ':')).encode()))


if __name__ == '__main__':
    main()
