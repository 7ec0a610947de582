"""Writes test/golden/processors.json.br, what transformers' image processors make of three pictures, and
test/golden/families/seen.json.br, the classes that its small models see in one: python scripts/golden-pictures.py

The processors are those of Pillow, and DINOv3's of torchvision, of which only its Python part is needed. Each value is
a float32 as it came; of large results one in some hundreds."""
import base64, importlib, io, json, os, subprocess, tempfile
import numpy as np
import torch
import torch.library

declared = torch.library.Library('torchvision', 'DEF')
own = torch.library.register_fake


def register_fake(op, *more, **named):
    """torchvision's operators need no library of its own to be named."""
    if not op.startswith('torchvision::'):
        return own(op, *more, **named)
    try:
        declared.define(f"{op.split('::')[1]}(Tensor a) -> Tensor")
    except RuntimeError:
        pass
    return lambda made: made


torch.library.register_fake = register_fake
import torchvision  # noqa: E402
from PIL import Image  # noqa: E402
import transformers  # noqa: E402
from transformers import AutoImageProcessor, AutoModelForImageClassification  # noqa: E402
from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING_NAMES  # noqa: E402

families = importlib.import_module('golden-families')
AT = os.path.join(os.path.dirname(__file__), '..', 'test', 'golden', 'processors.json.br')
SIZES = [(37, 23), (19, 45), (61, 52)]
ALL = ['CLIP', 'Bit', 'ViT', 'Siglip', 'DeiT', 'Beit', 'ConvNext', 'MobileNetV1', 'MobileNetV2', 'EfficientNet',
       'PoolFormer', 'Segformer', 'DINOv3ViT', 'MobileViT', 'OwlViT',
       'Owlv2', 'Levit', 'Pvt']
OLD = dict(do_normalize=True, do_resize=True)
THIRDS = dict(image_mean=[0.485, 0.456, 0.406], image_std=[0.47853944, 0.4732864, 0.47434163])


def square(n, m=None):
    return dict(height=n, width=m or n)


def edge(n):
    return dict(shortest_edge=n)


def cases():
    """Processors by the names that files give them, with the fields that they hold."""
    for name in ALL:  # nothing but the name
        yield f'{name}ImageProcessor', {}
        size = edge(20) if name in ('ConvNext', 'PoolFormer', 'MobileViT') else square(21, 18)
        yield f'{name}ImageProcessorFast', dict(size=size, do_center_crop=None, crop_size=None)
        yield f'{name}ImageProcessor', dict(size=size, do_resize=None, do_center_crop=None, do_normalize=None,
                                            data_format='channels_first', disable_grouping=None, device=None)
    # As published folders of the families have them, of smaller sizes.
    yield 'ViTFeatureExtractor', dict(**OLD, size=22, resample=3)
    yield 'DeiTFeatureExtractor', dict(**OLD, size=25, crop_size=22, do_center_crop=True, resample=3, **THIRDS)
    yield 'BeitFeatureExtractor', dict(**OLD, size=22, crop_size=22, do_center_crop=False, resample=2)
    yield 'BeitFeatureExtractor', dict(size=25, crop_size=22, do_center_crop=True, reduce_labels=True)
    yield 'ConvNextFeatureExtractor', dict(**OLD, size=22, crop_pct=0.875, resample=3)
    yield 'ConvNextImageProcessor', dict(size=edge(22), crop_pct=0.95, resample=2, do_center_crop=True, crop_size=17)
    yield 'ConvNextFeatureExtractor', dict(**OLD, size=384, crop_pct=None)
    yield 'BitImageProcessor', dict(size=edge(25), crop_size=square(22), do_center_crop=True, **THIRDS)
    yield 'BitImageProcessor', dict(size=edge(13), crop_size=square(22, 18), do_center_crop=True)
    yield 'CLIPFeatureExtractor', dict(**OLD, size=22, crop_size=22, do_center_crop=True)
    yield 'SiglipImageProcessor', dict(size=[17, 22], do_rescale=False)
    yield 'MobileNetV1FeatureExtractor', dict(size=edge(25), crop_size=square(22), do_center_crop=True)
    yield 'MobileNetV2ImageProcessor', dict(size=25, crop_size=22, do_center_crop=True, rescale_factor=0.01)
    yield 'EfficientNetImageProcessor', dict(size=square(24, 21), resample=0, **THIRDS)
    yield 'EfficientNetImageProcessor', dict(size=24, rescale_factor=1 / 127.5, rescale_offset=True, include_top=False)
    yield 'EfficientNetImageProcessor', dict(size=24, do_center_crop=True, crop_size=20, do_normalize=False)
    yield 'EfficientNetImageProcessor', dict(size=24, do_normalize=False, do_rescale=False, rescale_offset=True)
    yield 'MobileViTFeatureExtractor', dict(crop_size=square(22), do_center_crop=True, do_flip_channel_order=True,
                                            do_resize=True, resample=2, size=edge(25))
    yield 'MobileViTImageProcessor', dict(size=20, crop_size=23, do_flip_channel_order=False, rescale_factor=0.01,
                                          do_normalize=True, **THIRDS)
    yield 'MobileViTImageProcessor', dict(size=edge(20), do_center_crop=False, do_rescale=False)
    yield 'PoolFormerFeatureExtractor', dict(do_resize_and_center_crop=True, size=22, crop_size=22, crop_pct=0.9, resample=3)
    yield 'PoolFormerImageProcessor', dict(size=square(22), crop_size=square(20, 23), crop_pct=0.95)
    yield 'PoolFormerImageProcessor', dict(size=square(22, 25), do_center_crop=False)
    yield 'PoolFormerImageProcessor', dict(size=square(22), do_center_crop=False, crop_pct=None)
    yield 'SegformerFeatureExtractor', dict(**OLD, size=23, reduce_labels=False, resample=2, do_center_crop=True, crop_size=9)
    yield 'DINOv3ViTImageProcessorFast', dict(size=square(32, 16), resample=3, rescale_factor=0.005)
    yield 'DINOv3ViTImageProcessorFast', dict(size=edge(16), do_convert_rgb=None, **THIRDS)
    yield 'ViTImageProcessor', dict(size=20, default_to_square=False, resample=1)
    yield 'OwlViTFeatureExtractor', dict(**OLD, size=square(32), crop_size=square(20), do_center_crop=True, rescale=True)
    yield 'Owlv2ImageProcessor', dict(size=square(96, 80), do_pad=True, resample=2, do_rescale=True, **THIRDS)
    yield 'Owlv2ImageProcessor', dict(size=square(16, 70), do_pad=False)
    yield 'Owlv2ImageProcessor', dict(size=square(5, 9), rescale_factor=0.01)
    yield 'Owlv2ImageProcessor', dict(do_resize=False)
    yield 'LevitFeatureExtractor', dict(**OLD, size=22, crop_size=square(22), do_center_crop=True, resample=3)
    yield 'LevitImageProcessor', dict(size=edge(13), crop_size=square(16, 14), **THIRDS)
    yield 'PvtImageProcessor', dict(size=square(20, 22), crop_size=square(16), do_center_crop=True)
    # Pages: taller and wider paper than the pictures, turned or not.
    yield 'DonutFeatureExtractor', dict(size=[30, 44], do_align_long_axis=True, do_thumbnail=True, do_pad=True)
    yield 'DonutImageProcessor', dict(size=square(27, 51), resample=3, image_mean=[0.4, 0.5, 0.6])
    yield 'DonutImageProcessor', dict(size=square(50, 22), do_align_long_axis=False, do_normalize=False)
    yield 'DonutImageProcessorFast', dict(size=square(70, 65), do_resize=False, do_rescale=False, do_normalize=False)
    yield 'DonutImageProcessor', dict(size=square(24), do_pad=False, do_align_long_axis=True)


def file(image):
    out = io.BytesIO()
    image.save(out, 'PNG')
    return base64.b64encode(out.getvalue()).decode()


def compressed(at, found):
    text = json.dumps(found, separators=(',', ':')).encode()
    code = "process.stdout.write(require('zlib').brotliCompressSync(require('fs').readFileSync(0)))"
    open(at, 'wb').write(subprocess.run(['node', '-e', code], input=text, stdout=subprocess.PIPE, check=True).stdout)


# Classifiers with their own processors, of sizes that they take.
SEEN = ['beit-c', 'bit-c', 'convnext-c', 'convnextv2-c', 'cvt-c', 'data2vec-c', 'deit-c', 'dinov2-c',
        'dinov2_with_registers-c', 'efficientnet-c', 'focalnet-c', 'levit-c', 'mobilenet_v1-c', 'mobilenet_v2-c',
        'mobilevit-c', 'mobilevitv2-c', 'poolformer-c', 'pvt-c', 'pvt_v2-c', 'regnet-c', 'resnet-c', 'segformer-c',
        'swiftformer-c', 'swin-c', 'swinv2-c', 'vit_msn-c']


def seen_answers(name, folder):
    config = json.load(open(os.path.join(folder, 'config.json')))
    kind = config['model_type']
    # Published folders of DINOv2 with registers have DINOv2's.
    cls = getattr(transformers, IMAGE_PROCESSOR_MAPPING_NAMES[kind.removesuffix('_with_registers')]['pil'])
    side = config.get('image_size')
    side = 80 if kind == 'mobilevitv2' else side if kind == 'levit' else min(side if isinstance(side, int) else 32, 32)
    room = side + 3 if getattr(cls, 'do_center_crop', None) and kind != 'poolformer' else side
    size = square(room) if 'height' in cls.size else edge(room)
    cls(size=size, **({'crop_size': square(side)} if getattr(cls, 'do_center_crop', None) else {})).save_pretrained(folder)
    model = AutoModelForImageClassification.from_pretrained(folder, dtype=torch.float32).eval()
    picture = families.painted(43, 31, 5)
    with torch.no_grad():
        logits = model(**AutoImageProcessor.from_pretrained(folder, backend='pil')(picture, return_tensors='pt')).logits
    return {'file': json.load(open(os.path.join(folder, 'preprocessor_config.json'))), 'picture': file(picture),
            'scores': logits[0].softmax(-1).tolist()}


def main():
    families.stored_answers('vision', SEEN, 'seen', seen_answers)
    pictures = [families.painted(w, h, i) for i, (w, h) in enumerate(SIZES)]
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for name, fields in cases():
            kind = 'feature_extractor_type' if name.endswith('FeatureExtractor') else 'image_processor_type'
            config = {kind: name, **fields}
            json.dump({'model_type': 'vit'}, open(os.path.join(folder, 'config.json'), 'w'))
            json.dump(config, open(os.path.join(folder, 'preprocessor_config.json'), 'w'))
            made = AutoImageProcessor.from_pretrained(folder, backend='pil')
            outs = []
            for picture in pictures:
                values = np.asarray(made(picture, return_tensors='np')['pixel_values'][0], dtype=np.float32)
                step = max(1, values.size // 60) | 1
                outs.append([list(values.shape), step, [float(str(v)) for v in values.reshape(-1)[::step]]])
            found.append([config, outs])
            print(type(made).__name__, config, [o[0] for o in outs])
    compressed(AT, {'pictures': [file(p) for p in pictures], 'processors': found})


if __name__ == '__main__':
    main()
