"""Writes test/golden/families/sound-text.*, small models of sounds beside texts run by transformers, and
sound-texts-heard.json.br, what their extractors make of sounds: python scripts/golden-clap.py"""
import importlib, io, json, os, sys, tempfile
families = importlib.import_module('golden-families')
import numpy as np, torch  # noqa: E402
from transformers import ClapFeatureExtractor, ClapModel  # noqa: E402
from transformers.models.auto.configuration_auto import CONFIG_MAPPING  # noqa: E402

TEXT = dict(vocab_size=96, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40,
            max_position_embeddings=40, pad_token_id=1)
SOUND = dict(window_size=4, num_mel_bins=16, spec_size=32, patch_embeds_hidden_size=8, depths=[2, 2],
             num_attention_heads=[2, 4], hidden_size=16, patch_size=2, patch_stride=[2, 2])
MODELS = {
    'clap': ('clap', dict(text_config=TEXT, audio_config=SOUND, projection_dim=12)),
    'clap-b': ('clap', dict(text_config=dict(TEXT, hidden_act='relu', layer_norm_eps=1e-3), projection_dim=12,
                            projection_hidden_act='gelu', audio_config=dict(
                                SOUND, enable_fusion=True, fusion_type='aff_2d', aff_block_r=1, qkv_bias=False, mlp_ratio=2.0,
                                spec_size=64, window_size=8, hidden_act='relu'))),
    'clap-c': ('clap', dict(text_config=TEXT, projection_dim=12, audio_config=dict(
        SOUND, enable_patch_layer_norm=False, num_mel_bins=32, patch_size=4, layer_norm_eps=1e-3))),
}
own_spec = families.spec_of


def spec_of(name, t, seed):
    if name.endswith(('position_ids', 'token_type_ids', 'relative_position_index', 'num_batches_tracked')):
        return None
    spec = own_spec(name, t, seed)
    if t.ndim == 1 and np.all(t == 1):
        spec[3] = 1.0
    if t.ndim == 4:
        spec[2] = 1.3 / np.sqrt(np.prod(t.shape[1:]))
    return spec


families.spec_of = spec_of


def answers(model, vocab, seed):
    g = torch.Generator().manual_seed(seed)
    a = model.config.audio_config
    frames = a.spec_size * (a.spec_size // a.num_mel_bins) - 3
    views = 4 if a.enable_fusion else 1
    mel = torch.randn(2, views, frames, a.num_mel_bins, generator=g)
    ids = torch.randint(3, 96, (3, 9), generator=g)
    mask = torch.ones_like(ids)
    ids[1, 6:], mask[1, 6:] = 1, 0
    with torch.no_grad():
        out = model(input_ids=ids, attention_mask=mask, input_features=mel, is_longer=torch.ones(2, 1, dtype=torch.bool))
    found = {'mel': mel, 'input_ids': ids, 'attention_mask': mask, 'texts': out.text_embeds, 'sounds': out.audio_embeds,
             'logits': out.logits_per_audio, 'text_logits': out.logits_per_text}
    return {k: v.numpy().astype(np.float32 if v.is_floating_point() else np.int32) for k, v in found.items()}


SMALL = dict(feature_size=16, sampling_rate=4000, hop_length=40, max_length_s=1, fft_window_size=128, frequency_min=50,
             frequency_max=1800)
EXTRACTORS = {
    'one': (dict(SMALL, truncation='rand_trunc'), 2300), 'all': (dict(SMALL), 900), 'repeat': (dict(
        SMALL, truncation='rand_trunc', padding='repeat'), 1500), 'pad': (dict(SMALL, padding='pad', feature_size=9), 1500),
    'middle': (dict(SMALL, truncation='rand_trunc'), 4301), 'parts': (dict(SMALL, feature_size=64), 4700),
    'few': (dict(SMALL, feature_size=64), 4041),
    'edge': (dict(SMALL), 4030),
}


def heard(fields, size):
    at = np.arange(size)
    whole = np.round(np.sin(at / 9) * 8000 + np.sin(at * at / 5000.0) * 4000 + 300).astype(np.int64)
    extractor = ClapFeatureExtractor(**fields)
    # Where it would choose at random, the middle is taken.
    np.random.randint = lambda low, high: low + (high - 1 - low) // 2
    np.random.choice = lambda places: places[(len(places) - 1) // 2]
    given = extractor((whole / 32768).astype(np.float32), sampling_rate=fields['sampling_rate'])['input_features'][0]
    stored = {k: v for k, v in extractor.to_dict().items()}
    given = np.asarray(given, dtype=np.float32)
    return {'file': stored, 'samples': whole.tolist(), 'shape': list(given.shape),
            'given': [round(float(v), 4) for v in given.reshape(-1)[::11]]}


def main():
    families.run('sound-text', MODELS, {}, list(MODELS), ClapModel, answers)
    text = json.dumps({n: heard(*e) for n, e in EXTRACTORS.items()}, separators=(',', ':')).encode()
    open(os.path.join(families.GOLDEN, 'sound-texts-heard.json.br'), 'wb').write(families.node('brotliCompressSync', text))


if __name__ == '__main__':
    main()
