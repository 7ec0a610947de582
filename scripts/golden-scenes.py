"""Writes test/golden/families/scenes.*, small models of scenes (things, segments, distances) run by transformers, and
scenes-seen.json.br, what they and their processors make of a picture: python scripts/golden-scenes.py [NAME...]"""
import base64, importlib, io, json, os, sys, tempfile
pictures = importlib.import_module('golden-pictures')
import numpy as np, torch  # noqa: E402
from transformers import AutoModelForDepthEstimation, AutoModelForObjectDetection  # noqa: E402
from transformers import AutoModelForSemanticSegmentation  # noqa: E402

families = pictures.families
own_spec = families.spec_of


def spec_of(name, t, seed):
    """Norms by other names begin with ones, too, and filters do not grow with what they read."""
    if name.endswith('n_points_scale'):  # which the config alone makes
        return None
    spec = own_spec(name, t, seed)
    if t.ndim == 1 and spec is not None and np.all(t == 1):
        spec[3] = 1.0
    if t.ndim == 4 and spec is not None:
        spec[2] = 1.3 / np.sqrt(np.prod(t.shape[1:]))
    return spec


families.spec_of = spec_of
RESNET = dict(model_type='resnet', hidden_sizes=[8, 12, 16], depths=[1, 2, 1], embedding_size=8,
              out_features=['stage3'])
DETR = dict(use_timm_backbone=False, backbone=None, use_pretrained_backbone=False, backbone_config=RESNET, d_model=32,
            encoder_layers=2, decoder_layers=2, encoder_ffn_dim=40, decoder_ffn_dim=36, encoder_attention_heads=4,
            decoder_attention_heads=2, num_queries=5, num_labels=3)
CONDITIONAL = dict(backbone_config=RESNET, d_model=32, encoder_layers=1, decoder_layers=3, encoder_ffn_dim=40,
                   decoder_ffn_dim=36, encoder_attention_heads=4, decoder_attention_heads=2, num_queries=5, num_labels=3)
DEFORMABLE = dict({k: v for k, v in CONDITIONAL.items() if k != 'decoder_layers'}, decoder_layers=2,
                  backbone_config=dict(RESNET, out_features=['stage2', 'stage3']), num_feature_levels=4, encoder_n_points=3,
                  decoder_n_points=2)
YOLOS = dict(hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=40, image_size=[20, 30],
             patch_size=5, num_detection_tokens=4, num_labels=3)
DINO = dict(model_type='dinov2', hidden_size=32, num_hidden_layers=4, num_attention_heads=4, image_size=20,
            patch_size=5, mlp_ratio=2, reshape_hidden_states=False, out_features=['stage1', 'stage2', 'stage3', 'stage4'])
ANYTHING = dict(backbone=None, backbone_config=DINO, reassemble_hidden_size=32, patch_size=5,
                neck_hidden_sizes=[8, 12, 16, 16], fusion_hidden_size=12, head_hidden_size=6)
DPT = dict(hidden_size=32, num_hidden_layers=4, num_attention_heads=4, intermediate_size=40, image_size=32,
           patch_size=8, backbone_out_indices=[0, 1, 2, 3], is_hybrid=False, neck_hidden_sizes=[8, 12, 16, 16],
           fusion_hidden_size=12)
SEGMENTED = dict(families.SEGMENTED, decoder_hidden_size=12)
STEEP = dict(model_type='rt_detr_resnet', hidden_sizes=[8, 12, 16, 20], depths=[1, 2, 1, 1], embedding_size=8,
             out_features=['stage2', 'stage3', 'stage4'])
RT = dict(backbone_config=STEEP, encoder_hidden_dim=16, encoder_in_channels=[12, 16, 20], encoder_ffn_dim=24,
          encoder_attention_heads=4, decoder_in_channels=[16, 16, 16], d_model=24, decoder_ffn_dim=20, decoder_layers=2,
          decoder_attention_heads=2, decoder_n_points=3, num_queries=7, num_labels=3, eval_size=None)
UPER = dict(hidden_size=12, num_labels=4, auxiliary_channels=6, pool_scales=[1, 2, 3, 6], backbone_config=dict(
    model_type='swin', image_size=32, patch_size=2, embed_dim=8, depths=[1, 2, 1], num_heads=[2, 2, 4], window_size=4,
    out_features=['stage1', 'stage2', 'stage3']))
SCENES = {
    AutoModelForObjectDetection: {
        'rt_detr': ('rt_detr', RT),
        'rt_detr-b': ('rt_detr', dict(
            RT, backbone_config=dict(STEEP, layer_type='basic', embedding_size=6, hidden_sizes=[6, 12, 16, 20],
                                     hidden_act='silu'), hidden_expansion=0.5, normalize_before=True,
            num_feature_levels=4, activation_function='relu', layer_norm_eps=1e-3,
            encoder_activation_function='relu', decoder_activation_function='silu', encoder_layers=2,
            positional_encoding_temperature=50, batch_norm_eps=1e-3, num_denoising=0)),
        'rt_detr-c': ('rt_detr', dict(RT, eval_size=64, encode_proj_layers=[1, 2], decoder_layers=1,
                                      backbone_config=dict(STEEP, downsample_in_bottleneck=True))),
        'rt_detr_v2': ('rt_detr_v2', dict(RT, decoder_offset_scale=0.3, decoder_n_levels=3)),
        'yolos': ('yolos', YOLOS),
        'yolos-b': ('yolos', dict(YOLOS, use_mid_position_embeddings=False, qkv_bias=False, hidden_act='relu',
                                  layer_norm_eps=1e-2, num_labels=2)),
        'detr': ('detr', DETR),
        'detr-b': ('detr', dict(DETR, position_embedding_type='learned', activation_function='gelu', decoder_layers=1,
                                backbone_config=dict(RESNET, layer_type='basic', hidden_act='silu'))),
        'table-transformer': ('table-transformer', DETR),
        'conditional_detr': ('conditional_detr', CONDITIONAL),
        'conditional_detr-b': ('conditional_detr', dict(CONDITIONAL, position_embedding_type='learned', decoder_layers=1,
                                                        activation_function='gelu', encoder_layers=2)),
        'deformable_detr': ('deformable_detr', DEFORMABLE),
        'deformable_detr-b': ('deformable_detr', dict(DEFORMABLE, with_box_refine=True, num_queries=7,
                                                      position_embedding_type='learned', activation_function='gelu')),
        'deformable_detr-c': ('deformable_detr', dict(DEFORMABLE, with_box_refine=True, two_stage=True, encoder_layers=2,
                                                      two_stage_num_proposals=6, num_feature_levels=3)),
        'deformable_detr-d': ('deformable_detr', dict(DEFORMABLE, num_feature_levels=1, decoder_layers=3,
                                                      backbone_config=RESNET)),
    },
    AutoModelForSemanticSegmentation: {
        'segformer-s': ('segformer', dict(SEGMENTED, num_labels=4)),
        'dpt-s': ('dpt', dict(DPT, num_labels=3, readout_type='add')),
        'mobilevit-s': ('mobilevit', dict(families.MOBILE, aspp_out_channels=12, num_labels=4, output_stride=8)),
        'mobilevitv2-s': ('mobilevitv2', dict(families.MOBILE2, aspp_out_channels=12, atrous_rates=[1, 2, 4],
                                              output_stride=16, num_labels=4)),
        'upernet': ('upernet', UPER),
        'upernet-b': ('upernet', dict(UPER, use_auxiliary_head=False, pool_scales=[1, 3], backbone_config=dict(
            model_type='convnext', hidden_sizes=[8, 12, 16], depths=[1, 2, 1], num_stages=3, patch_size=2,
            out_features=['stage1', 'stage2', 'stage3']))),
        'upernet-c': ('upernet', dict(UPER, num_labels=2, backbone_config=dict(
            model_type='resnet', hidden_sizes=[8, 12, 16], depths=[1, 2, 1], embedding_size=8,
            out_features=['stage1', 'stage2', 'stage3']))),
        'segformer-t': ('segformer', dict(SEGMENTED, sr_ratios=[4, 1], hidden_act='relu', mlp_ratios=[1, 3])),
    },
    AutoModelForDepthEstimation: {
        'depth_anything': ('depth_anything', ANYTHING),
        'depth_anything-b': ('depth_anything', dict(
            ANYTHING, depth_estimation_type='metric', max_depth=20, reassemble_factors=[2, 0.5], head_in_index=-2,
            backbone_config=dict(DINO, out_features=['stage1', 'stage4']),
            neck_hidden_sizes=[8, 12])),
        'dpt': ('dpt', DPT),
        'dpt-b': ('dpt', dict(DPT, readout_type='add', use_batch_norm_in_fusion_residual=True, hidden_act='relu',
                              backbone_out_indices=[1, 2, 3], neck_hidden_sizes=[8, 12, 16],
                              reassemble_factors=[2, 1, 0.5])),
        'dpt-c': ('dpt', dict(DPT, readout_type='ignore', backbone_config=DINO, patch_size=5)),
        'glpn': ('glpn', SEGMENTED),
        'glpn-b': ('glpn', dict(SEGMENTED, decoder_hidden_size=16, max_depth=3, hidden_act='relu')),
    },
}


def answers(model, _, seed):
    tall, wide = (32, 32) if model.config.model_type == 'dpt' and model.config.backbone_config is None else (40, 30)
    tall, wide = (64, 96) if model.config.model_type.startswith('rt_detr') else (tall, wide)
    tall, wide = (64, 32) if model.config.model_type == 'glpn' else (tall, wide)
    pixels = torch.randn(2, 3, tall, wide, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        out = model(pixels)
    found = {'pixels': pixels, 'logits': out.predicted_depth if 'predicted_depth' in out else out.logits}
    if 'pred_boxes' in out:
        found['boxes'] = out.pred_boxes
    return {k: v.numpy().astype(np.float32) for k, v in found.items()}


# What a folder says of its pictures.
PROCESSORS = {
    'yolos': ('YolosImageProcessor', dict(size=dict(shortest_edge=40, longest_edge=60))),
    'detr': ('DetrImageProcessor', dict(size=dict(shortest_edge=40, longest_edge=50))),
    'detr-b': ('DetrImageProcessor', dict(size=40, max_size=90, do_pad=True, image_mean=[0.4, 0.5, 0.6])),
    'table-transformer': ('DetrImageProcessor', dict(size=dict(height=33, width=47), do_normalize=False)),
    'conditional_detr': ('ConditionalDetrImageProcessor', dict(size=dict(shortest_edge=40, longest_edge=60))),
    'deformable_detr-c': ('DeformableDetrImageProcessor', dict(size=dict(shortest_edge=40, longest_edge=60))),
    'rt_detr': ('RTDetrImageProcessor', dict(size=dict(height=64, width=96))),
    'upernet': ('SegformerImageProcessor', dict(size=dict(height=40, width=40))),
    'segformer-s': ('SegformerImageProcessor', dict(size=dict(height=32, width=48), do_reduce_labels=True)),
    'mobilevit-s': ('MobileViTImageProcessor', dict(size=dict(shortest_edge=36), crop_size=dict(height=32, width=32))),
    'depth_anything': ('DPTImageProcessor', dict(size=dict(height=40, width=40), keep_aspect_ratio=True,
                                                 ensure_multiple_of=5, do_pad=False, size_divisor=None)),
    'dpt': ('DPTImageProcessor', dict(size=dict(height=32, width=32))),
    'glpn': ('GLPNImageProcessor', dict(size_divisor=16)),
}


def seen(name):
    """A picture through a processor, a model and what the processor makes of its answers."""
    kind, fields = PROCESSORS[name]
    make = next(m for m, table in SCENES.items() if name in table)
    packed = open(os.path.join(families.GOLDEN, 'scenes.json.br'), 'rb').read()
    stored = json.loads(families.node('brotliDecompressSync', packed))
    with tempfile.TemporaryDirectory() as at:
        spec = stored['models'][name]
        json.dump(spec['config'], open(os.path.join(at, 'config.json'), 'w'))
        tensors = {k: families.made(s) for k, s in spec['tensors'].items()}
        families.save_file(tensors, os.path.join(at, 'model.safetensors'), metadata={'format': 'pt'})
        model = make.from_pretrained(at, dtype=torch.float32).eval()
    picture = families.painted(53, 37, 7)
    processor = getattr(pictures.transformers, f'{kind}Pil')(**fields)
    pixels = processor(picture, return_tensors='pt')['pixel_values']
    with torch.no_grad():
        out = model(pixels)
    size = [(picture.height, picture.width)]
    if make is AutoModelForObjectDetection:
        found = processor.post_process_object_detection(out, threshold=0.0, target_sizes=size)[0]
        answer = {k: v.tolist() for k, v in found.items()}
    elif make is AutoModelForSemanticSegmentation:
        answer = processor.post_process_semantic_segmentation(out, target_sizes=size)[0].flatten().tolist()
    else:
        found = processor.post_process_depth_estimation(out, target_sizes=size)[0]
        answer = found['predicted_depth'].flatten().tolist()
    file = io.BytesIO()
    picture.save(file, 'PNG')
    told = {**fields, 'image_processor_type': kind}
    values = pixels.flatten().tolist()
    return {'file': told, 'picture': base64.b64encode(file.getvalue()).decode(), 'shape': list(pixels.shape),
            'pixels': values[::37], 'answer': answer}


def main():
    for make, table in SCENES.items():
        names = [n for n in table if not sys.argv[1:] or n in sys.argv[1:]]
        if names:
            families.run('scenes', table, {}, names, make, answers)
    at = os.path.join(families.GOLDEN, 'scenes-seen.json.br')
    known = json.loads(families.node('brotliDecompressSync', open(at, 'rb').read())) if sys.argv[1:] else {}
    known |= {n: seen(n) for n in PROCESSORS if not sys.argv[1:] or n in sys.argv[1:]}
    text = json.dumps(known, separators=(',', ':')).encode()
    open(at, 'wb').write(families.node('brotliCompressSync', text))


if __name__ == '__main__':
    main()
