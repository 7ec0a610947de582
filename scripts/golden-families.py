"""Adds small random models, run by transformers, to test/golden/families: python scripts/golden-families.py [NAME...]

Weights are numbers by formula (test/models-support.ts has the same one), so that only configs and answers are
stored."""
import json, os, re, subprocess, sys, tempfile, zlib
import numpy as np, torch
from safetensors.numpy import load as load_bytes, load_file, save, save_file
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForQuestionAnswering
from transformers import AutoModelForSeq2SeqLM, AutoModelForSequenceClassification, AutoModelForTokenClassification
from transformers import AutoModelForAudioClassification, AutoModelForCTC, AutoModelForImageTextToText
from transformers import AutoModelForSpeechSeq2Seq, ParakeetForRNNT, ParakeetForTDT
from transformers import AutoModelForImageClassification, DeiTForImageClassification, T5EncoderModel
from transformers import AutoModelForVideoClassification
from transformers import BlipForConditionalGeneration, BlipForImageTextRetrieval
from transformers import DeiTForImageClassificationWithTeacher, LevitForImageClassification
from transformers import LevitForImageClassificationWithTeacher
from transformers import VisionEncoderDecoderModel
from transformers import Emu3ForCausalLM, Emu3TextConfig, MllamaForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.models.mllama.configuration_mllama import MllamaTextConfig

# A part of models that read images, by itself.
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES['mistral4'] = 'Mistral4ForCausalLM'
# Texts of models that read images, which have a class and no place among those found by their type.
TEXTS = {'mllama_text_model': (MllamaTextConfig, MllamaForCausalLM), 'emu3_text_model': (Emu3TextConfig, Emu3ForCausalLM)}
GOLDEN = os.path.join(os.path.dirname(__file__), '..', 'test', 'golden', 'families')
SIZES = dict(vocab_size=96, hidden_size=48, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
             intermediate_size=64, max_position_embeddings=128, bos_token_id=1, eos_token_id=2, pad_token_id=0)
DELTA = dict(head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=12,
             linear_value_head_dim=8,
             layer_types=['linear_attention', 'full_attention', 'linear_attention'])
MOE = dict(num_experts=6, num_experts_per_tok=2, moe_intermediate_size=24, shared_expert_intermediate_size=20)
MAMBA = dict(mamba_n_heads=6, mamba_d_state=8, mamba_chunk_size=16, shared_intermediate_size=40,
             attention_multiplier=0.3,
             embedding_multiplier=3.0, residual_multiplier=0.5, logits_scaling=2.0)
HYBRID = dict(mamba_n_heads=6, mamba_d_state=8, mamba_chunk_size=16)
NEMOTRON = dict(mamba_num_heads=6, mamba_head_dim=8, ssm_state_size=8, n_groups=2, chunk_size=16, head_dim=16,
                n_routed_experts=6, moe_intermediate_size=24, moe_shared_expert_intermediate_size=20)
AFMOE = dict(moe_intermediate_size=24, num_experts=6, num_experts_per_tok=2, head_dim=16, sliding_window=7)
LATENT = dict(kv_lora_rank=16, q_lora_rank=20, qk_rope_head_dim=8, qk_nope_head_dim=12, num_key_value_heads=4)
JAMBA = dict(num_experts=4, mamba_d_state=6)
GRANITE = dict(intermediate_size=80, attention_multiplier=0.2, embedding_multiplier=3.0, residual_multiplier=0.4,
               logits_scaling=2.5,
               rms_norm_eps=1e-6)
MELLUM = dict(intermediate_size=80, head_dim=16, moe_intermediate_size=24, num_experts=8, num_experts_per_tok=3,
              norm_topk_prob=False)
DBRX = dict(d_model=48, n_layers=3, n_heads=4, max_seq_len=128)
HUNYUAN = dict(head_dim=16, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=24)
GEMMA = dict(head_dim=16, sliding_window=7, hidden_size_per_layer_input=10, vocab_size_per_layer_input=96,
             num_hidden_layers=6,
             layer_types=['sliding_attention', 'full_attention'] * 3, num_kv_shared_layers=2)
M3 = dict(num_local_experts=4, head_dim=16, dense_intermediate_size=40, shared_intermediate_size=20, index_head_dim=8,
          index_n_heads=2, index_block_size=16, index_topk_blocks=8)
ZAMBA1 = dict(num_key_value_heads=4, mamba_d_state=6)
ZAMBA = dict(num_key_value_heads=4, mamba_d_state=8, n_mamba_heads=6, chunk_size=16, adapter_rank=6)
OLMO = dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=12, linear_value_head_dim=8)
KIMI = dict(num_experts=6, num_experts_per_token=2, moe_intermediate_size=24, kv_lora_rank=16, qk_rope_head_dim=8,
            v_head_dim=16,
            qk_nope_head_dim=12, num_key_value_heads=4, linear_num_heads=3, linear_head_dim=8)
LAGUNA = dict(head_dim=16, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=24,
              shared_expert_intermediate_size=20,
              sliding_window=6)
MIMO = dict(head_dim=24, v_head_dim=16, n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=24,
            sliding_window=6,
            rms_norm_eps=1e-6)
COHERE = dict(head_dim=16, num_experts=6, sliding_window=6)
DSA = dict(**LATENT, v_head_dim=16, n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=24, index_topk=64,
           index_n_heads=2, index_head_dim=12)
LONGCAT = dict(num_layers=2, ffn_hidden_size=64, q_lora_rank=20, kv_lora_rank=16, qk_nope_head_dim=12, qk_rope_head_dim=8,
               head_dim=8, v_head_dim=16, moe_topk=3, n_routed_experts=4, zero_expert_num=2, expert_ffn_hidden_size=24,
               num_key_value_heads=4)
XLSTM = dict(hidden_size=128, num_hidden_layers=2, num_heads=4, ffn_round_up_to_multiple_of=16)
ZAYA = dict(head_dim=16, moe_intermediate_size=24, num_experts=4, router_hidden_size=20)
DEEPSEEK4 = dict(head_dim=16, q_lora_rank=20, moe_intermediate_size=24, n_routed_experts=4, num_experts_per_tok=2, hc_mult=2,
                 hc_sinkhorn_iters=3, o_groups=2, o_lora_rank=10, index_n_heads=8, index_head_dim=12, index_topk=4,
                 sliding_window=6, partial_rotary_factor=0.5, num_key_value_heads=1,
                 compress_rates={'compressed_sparse_attention': 4, 'heavily_compressed_attention': 8})
# Types without attention, or with a list of layers instead of their number.
UNASKED = {**{kind: ('num_attention_heads', 'num_key_value_heads', 'intermediate_size', 'max_position_embeddings')
              for kind in ('mamba', 'mamba2', 'falcon_mamba')}, 'nemotron_h': ('num_hidden_layers',),
           'xlstm': ('num_attention_heads', 'num_key_value_heads', 'intermediate_size', 'max_position_embeddings'),
           'deepseek_v4': ('intermediate_size',), 'zaya': ('intermediate_size',), 'hrm_text': ('num_key_value_heads',), 'longcat_flash': ('num_hidden_layers', 'intermediate_size'),
           'rwkv': ('num_attention_heads', 'num_key_value_heads', 'intermediate_size', 'max_position_embeddings'),
           'gpt_neo': ('num_key_value_heads',), 'gpt2': ('intermediate_size', 'num_key_value_heads'),
           **{kind: ('hidden_size', 'num_hidden_layers', 'num_attention_heads', 'intermediate_size')
              for kind in ('bart', 'mbart', 'mvp')},
           **{kind: ('hidden_size', 'num_hidden_layers', 'num_attention_heads', 'intermediate_size',
                     'max_position_embeddings') for kind in ('t5', 'mt5', 'umt5', 'led')},
           'bloom': ('num_hidden_layers', 'num_attention_heads', 'num_key_value_heads', 'intermediate_size',
                     'max_position_embeddings'),
           'gpt_neox_japanese': ('num_key_value_heads', 'intermediate_size'),
           'modernbert-decoder': ('num_key_value_heads',),
           'recurrent_gemma': ('max_position_embeddings',), 'jetmoe': ('num_attention_heads',),
               'opt': ('num_key_value_heads', 'intermediate_size'), 'biogpt': ('num_key_value_heads',),
           **{kind: ('hidden_size', 'num_hidden_layers', 'num_attention_heads', 'intermediate_size')
              for kind in ('xlm', 'flaubert')},
           'xlnet': ('hidden_size', 'num_hidden_layers', 'num_attention_heads', 'intermediate_size',
                     'max_position_embeddings'),
           'distilbert': ('hidden_size', 'num_hidden_layers', 'num_attention_heads', 'intermediate_size'),
           **{kind: ('hidden_size', 'num_hidden_layers', 'num_attention_heads', 'num_key_value_heads',
                     'intermediate_size',
                       'max_position_embeddings') for kind in ('codegen', 'openai-gpt', 'dbrx', 'ctrl')},
           'xglm': ('hidden_size', 'num_hidden_layers', 'num_attention_heads', 'num_key_value_heads',
                    'intermediate_size')}
MODELS = {
    'axk2': ('axk2', {**DSA, 'gated_norm_rank': 6}),
    'axk2-b': ('axk2', {
        **DSA, 'gated_norm_rank': 5, 'mlp_layer_types': ['sparse', 'dense', 'sparse'], 'attention_bias': True,
        'n_group': 3, 'topk_group': 2, 'norm_topk_prob': False, 'n_shared_experts': 2, 'rms_norm_eps': 1e-2,
        'tie_word_embeddings': True, 'rope_parameters': {
            'rope_type': 'yarn', 'rope_theta': 10000.0, 'factor': 4.0, 'original_max_position_embeddings': 32,
            'mscale': 1.0, 'mscale_all_dim': 0.8}}),
    'hy_v4': ('hy_v4', {**DSA, 'hc_mult': 2}),
    'hy_v4-b': ('hy_v4', {
        **DSA, 'hc_mult': 3, 'hc_magnitude': 1.3, 'hc_eps': 1e-3, 'swiglu_limit': 0.6, 'attention_bias': True,
        'mlp_layer_types': ['sparse', 'dense', 'sparse'], 'indexer_types': ['full', 'shared', 'shared'],
        'routed_scaling_factor': 1.3, 'norm_topk_prob': False, 'rms_norm_eps': 1e-2, 'tie_word_embeddings': True,
        'hidden_act': 'gelu'}),
    'deepseek_v4': ('deepseek_v4', {
        **DEEPSEEK4, 'mlp_layer_types': ['hash_moe', 'moe', 'moe'], 'layer_types': [
            'sliding_attention', 'compressed_sparse_attention', 'heavily_compressed_attention']}),
    'deepseek_v4-b': ('deepseek_v4', {
        **DEEPSEEK4, 'num_hidden_layers': 4, 'hc_mult': 3, 'mlp_layer_types': ['moe', 'hash_moe', 'moe', 'moe'],
        'layer_types': ['heavily_compressed_attention', 'compressed_sparse_attention', 'compressed_sparse_attention',
                        'sliding_attention'],
        'compress_rates': {'compressed_sparse_attention': 2, 'heavily_compressed_attention': 5}, 'index_topk': 3,
        'scoring_func': 'sigmoid', 'hidden_act': 'gelu', 'mlp_bias': True, 'routed_scaling_factor': 1.2,
        'swiglu_limit': 0.7, 'rms_norm_eps': 1e-2, 'tie_word_embeddings': True, 'o_groups': 4, 'sliding_window': 9,
        'hc_sinkhorn_iters': 1, 'hc_eps': 1e-3, 'rope_parameters': {
            'main': {'rope_type': 'default', 'rope_theta': 500.0, 'partial_rotary_factor': 0.25},
            'compress': {'rope_type': 'yarn', 'rope_theta': 10000.0, 'partial_rotary_factor': 0.25, 'factor': 4.0,
                         'original_max_position_embeddings': 16, 'attention_factor': 1.0}}}),
    'zaya': ('zaya', ZAYA),
    'zaya-b': ('zaya', {
        **ZAYA, 'attention_bias': True, 'lm_head_bias': True, 'cca_time0': 3, 'cca_time1': 1, 'hidden_act': 'gelu',
        'layer_types': ['hybrid_sliding', 'hybrid', 'hybrid_sliding'], 'sliding_window': 7, 'num_key_value_heads': 1,
        'rms_norm_eps': 1e-2, 'tie_word_embeddings': False, 'rope_parameters': {
            'hybrid': {'rope_type': 'linear', 'rope_theta': 500.0, 'factor': 2.0},
            'hybrid_sliding': {'rope_type': 'default', 'rope_theta': 100.0, 'partial_rotary_factor': 0.25}}}),
    'xlstm': ('xlstm', XLSTM),
    'xlstm-b': ('xlstm', {**XLSTM, 'num_heads': 2, 'use_bias': True, 'qk_dim_factor': 1.0,
                          'v_dim_factor': 1.5, 'chunk_size': 16, 'gate_soft_cap': 4.0, 'output_logit_soft_cap': 5.0,
                          'norm_eps': 1e-2, 'eps': 1e-2, 'ffn_proj_factor': 1.3}),
    'hrm_text': ('hrm_text', {'num_hidden_layers': 2, 'head_dim': 12, 'L_cycles': 2}),
    'hrm_text-b': ('hrm_text', {'num_hidden_layers': 1, 'head_dim': 16, 'H_cycles': 3, 'L_cycles': 1, 'mlp_bias': True,
                                'attention_bias': True, 'hidden_act': 'gelu', 'embedding_scale': 1.7,
                                'rms_norm_eps': 1e-2, 'tie_word_embeddings': True, 'prefix_lm': False,
                                'rope_parameters': {'rope_type': 'linear', 'rope_theta': 500.0, 'factor': 2.0}}),
    'longcat_flash': ('longcat_flash', LONGCAT),
    'longcat_flash-b': ('longcat_flash', {
        **LONGCAT, 'num_layers': 1, 'zero_expert_num': 3, 'n_routed_experts': 3, 'moe_topk': 2,
        'attention_bias': True, 'routed_scaling_factor': 1.7, 'hidden_act': 'gelu', 'rms_norm_eps': 1e-2,
        'tie_word_embeddings': True, 'rope_parameters': {
            'rope_type': 'yarn', 'rope_theta': 10000.0, 'factor': 4.0, 'original_max_position_embeddings': 32,
            'mscale': 1.0, 'mscale_all_dim': 0.8}}),
    'minimax_m3_vl_text': ('minimax_m3_vl_text', {
        **M3, 'mlp_layer_types': ['dense', 'sparse', 'sparse'],
        'layer_types': ['full_attention', 'minimax_m3_sparse', 'minimax_m3_sparse']}),
    'minimax_m3_vl_text-b': ('minimax_m3_vl_text', {
        **M3, 'num_local_experts': 6, 'num_experts_per_tok': 3, 'swiglu_limit': 0.5, 'swiglu_alpha': 1.1,
        'routed_scaling_factor': 1.3, 'tie_word_embeddings': True, 'rms_norm_eps': 1e-2,
        'rope_parameters': {'rope_type': 'default', 'rope_theta': 500.0, 'partial_rotary_factor': 0.5}}),
    'cohere_compass_text': ('cohere_compass_text', {
        'layer_types': ['sliding_attention', 'full_attention', 'sliding_attention'], 'sliding_window': 6,
        'rope_parameters': {'full_attention': None, 'sliding_attention': {
            'rope_type': 'default', 'rope_theta': 10000.0, 'mrope_section': [3, 2, 1]}}}),
    'cohere_compass_text-b': ('cohere_compass_text', {
        'head_dim': 16, 'attention_bias': True, 'logit_scale': 0.3, 'tie_word_embeddings': False,
        'layer_norm_eps': 1e-2, 'layer_types': ['full_attention', 'sliding_attention', 'full_attention'],
        'sliding_window': 9, 'rope_parameters': {
            'full_attention': {'rope_type': 'default', 'rope_theta': 500.0, 'mrope_section': [3, 3, 2]},
            'sliding_attention': {'rope_type': 'linear', 'rope_theta': 100.0, 'factor': 2.0,
                                  'mrope_section': [2, 2, 4]}}}),
    'zamba': ('zamba', {**ZAMBA1, 'num_hidden_layers': 4, 'layers_block_type': ['linear_attention', 'hybrid',
                                                                                'linear_attention', 'hybrid']}),
    'zamba-b': ('zamba', {**ZAMBA1, 'num_hidden_layers': 6, 'n_mamba_heads': 3, 'attn_layer_period': 2,
                          'attn_layer_offset': 1, 'mamba_proj_bias': True, 'mamba_conv_bias': False, 'hidden_act': 'silu',
                          'mamba_dt_rank': 5, 'num_key_value_heads': 2, 'tie_word_embeddings': False,
                          'rms_norm_eps': 1e-2}),
    'doge': ('doge', {}),
    'doge-b': ('doge', {'num_key_value_heads': 1, 'attention_bias': True, 'mlp_bias': True, 'sliding_window': 7,
                        'hidden_act': 'gelu', 'head_dim': 20, 'tie_word_embeddings': True, 'rms_norm_eps': 1e-2,
                        'rope_parameters': {'rope_type': 'linear', 'rope_theta': 500.0, 'factor': 2.0}}),
    'rwkv': ('rwkv', {'num_hidden_layers': 3}),
    'rwkv-b': ('rwkv', {'num_hidden_layers': 5, 'rescale_every': 2,
                        'layer_norm_epsilon': 1e-2, 'tie_word_embeddings': True}),
    'bloom-b': ('bloom', {'apply_residual_connection_post_layernorm': True, 'n_head': 3, 'n_layer': 2}),
    'gemma4_unified_text': ('gemma4_unified_text', {
        **{k: v for k, v in GEMMA.items() if 'per_layer_input' not in k}, 'use_double_wide_mlp': True,
        'final_logit_softcapping': 20.0, 'global_head_dim': 24}),
    'mllama_text_model': ('mllama_text_model', {'num_hidden_layers': 4, 'cross_attention_layers': [1, 2]}),
    'emu3_text_model': ('emu3_text_model', {'rope_parameters': {'rope_type': 'linear', 'rope_theta': 10000.0,
                                                                'factor': 2.0}}),
    'diffllama': ('diffllama', {}),
    'diffllama-b': ('diffllama', {'num_attention_heads': 8, 'num_key_value_heads': 4, 'head_dim': 10,
                                  'attention_bias': True, 'rms_norm_eps': 1e-2, 'tie_word_embeddings': True}),
    'qwen3_next': ('qwen3_next', {**DELTA, **MOE}),
    'qwen3_next-b': ('qwen3_next', {**DELTA, **MOE, 'attention_bias': True, 'norm_topk_prob': False,
                                    'mlp_only_layers': [1],
                                   'linear_conv_kernel_dim': 3, 'linear_num_value_heads': 2,
                                    'tie_word_embeddings': True}),
    'deepseek_v32': ('deepseek_v32', {**DSA, 'n_group': 3, 'topk_group': 2, 'first_k_dense_replace': 1,
                                      'rope_parameters': {'rope_type': 'yarn', 'rope_theta': 10000.0, 'factor': 4.0,
                                                          'original_max_position_embeddings': 32, 'mscale': 1.0,
                                                          'mscale_all_dim': 0.7}}),
    'glm_moe_dsa': ('glm_moe_dsa', {**DSA, 'n_group': 1, 'topk_group': 1, 'attention_bias': True,
                                    'first_k_dense_replace': 0, 'n_shared_experts': 2,
                                    'indexer_types': ['full', 'shared', 'full'], 'tie_word_embeddings': True}),
    'qwen3_5_text': ('qwen3_5_text', DELTA),
    'qwen3_5_moe_text': ('qwen3_5_moe_text', {**DELTA, **MOE}),
    'granitemoehybrid': ('granitemoehybrid', {**MAMBA, 'num_local_experts': 4,
                         'layer_types': ['linear_attention', 'full_attention', 'linear_attention']}),
    'granitemoehybrid-b': ('granitemoehybrid', {**MAMBA, 'num_local_experts': 0, 'mamba_proj_bias': True,
                                                'mamba_n_groups': 2,
                           'position_embedding_type': 'rope', 'mamba_conv_bias': False,
                           'layer_types': ['full_attention', 'linear_attention', 'linear_attention']}),
    'mamba2': ('mamba2', dict(num_heads=6, head_dim=16, state_size=8, n_groups=2, chunk_size=16)),
    'falcon_h1': ('falcon_h1', {**HYBRID, 'mamba_d_ssm': 60, 'mamba_n_groups': 2}),
    'falcon_h1-b': ('falcon_h1', {**HYBRID, 'mamba_d_ssm': 48, 'mamba_rms_norm': True, 'mamba_norm_before_gate': False,
                    'mamba_n_groups': 2, 'lm_head_multiplier': 0.7, 'embedding_multiplier': 1.5,
                                  'mlp_multipliers': [0.8, 1.3],
                    'key_multiplier': 0.6, 'attention_out_multiplier': 0.9, 'attention_in_multiplier': 1.2,
                    'ssm_multipliers': [0.5, 1.5, 0.8, 1.2, 0.9], 'ssm_in_multiplier': 1.1, 'ssm_out_multiplier': 0.8,
                    'attention_bias': True, 'mlp_bias': True, 'mamba_proj_bias': True, 'projectors_bias': True}),
    'falcon_h1-c': ('falcon_h1', {**HYBRID, 'mamba_d_ssm': None, 'mamba_rms_norm': True, 'mamba_conv_bias': False,
                    'tie_word_embeddings': True}),
    'bamba': ('bamba', {**HYBRID, 'attn_layer_indices': [1]}),
    'bamba-b': ('bamba', {**HYBRID, 'attn_layer_indices': [0, 2], 'mamba_n_groups': 2, 'mamba_proj_bias': True,
                          'mlp_bias': True,
                'mamba_conv_bias': False, 'attention_bias': True, 'tie_word_embeddings': True,
                          'time_step_limit': [0.3, 0.9]}),
    'nemotron_h': ('nemotron_h', {**NEMOTRON, 'layers_block_type': ['linear_attention', 'moe', 'full_attention',
                                                                    'mlp']}),
    'nemotron_h-b': ('nemotron_h', {**NEMOTRON, 'moe_latent_size': 20, 'mlp_bias': True, 'use_bias': True,
                                    'use_conv_bias': False,
                     'n_groups': 1, 'n_group': 3, 'topk_group': 2, 'norm_topk_prob': False,
                                    'routed_scaling_factor': 1.7,
                     'layers_block_type': ['mlp', 'linear_attention', 'linear_attention', 'moe', 'full_attention']}),
    'jamba': ('jamba', {**JAMBA, 'attn_layer_period': 3, 'attn_layer_offset': 1, 'mamba_dt_rank': 5}),
    'jamba-b': ('jamba', {**JAMBA, 'attn_layer_period': 2, 'attn_layer_offset': 0, 'expert_layer_offset': 0,
                          'mamba_expand': 1,
                'mamba_proj_bias': True, 'mamba_conv_bias': False, 'tie_word_embeddings': True}),
    'mamba': ('mamba', dict(state_size=8)),
    'mamba-b': ('mamba', dict(state_size=5, time_step_rank=7, use_bias=True, use_conv_bias=False, expand=1,
                              conv_kernel=3,
                tie_word_embeddings=False)),
    'falcon_mamba': ('falcon_mamba', dict(state_size=8, mixer_rms_eps=1e-2)),
    'gpt_neo': ('gpt_neo', dict(num_hidden_layers=4, attention_types=[[['global', 'local'], 2]], window_size=6)),
    'gpt_neo-b': ('gpt_neo', dict(intermediate_size=None, attention_types=[[['local'], 1], [['global'], 2]],
                                  window_size=9,
                  tie_word_embeddings=False, activation_function='gelu')),
    'codegen': ('codegen', dict(n_embd=48, n_layer=3, n_head=4, n_positions=128, rotary_dim=8)),
    'codegen-b': ('codegen', dict(n_embd=64, n_layer=2, n_head=8, n_positions=128, rotary_dim=4, n_inner=40,
                  activation_function='relu')),
    'nanochat': ('nanochat', {}),
    'nanochat-b': ('nanochat', dict(attention_bias=True, final_logit_softcapping=None, num_key_value_heads=1,
                                    hidden_act='gelu')),
    'afmoe': ('afmoe', {**AFMOE, 'layer_types': ['sliding_attention', 'full_attention', 'sliding_attention']}),
    'afmoe-b': ('afmoe', {**AFMOE, 'num_dense_layers': 2, 'num_shared_experts': 1, 'route_scale': 1.7,
                          'mup_enabled': True,
                'tie_word_embeddings': True, 'global_attn_every_n_layers': 2}),
    'youtu': ('youtu', {**LATENT, 'v_head_dim': 16, 'pad_token_id': None}),
    'youtu-b': ('youtu', {**LATENT, 'v_head_dim': 8, 'q_lora_rank': None, 'rope_interleave': False,
                          'attention_bias': True,
                'tie_word_embeddings': False}),
    'minicpm3': ('minicpm3', LATENT),
    'minicpm3-b': ('minicpm3', {**LATENT, 'v_head_dim': 16, 'scale_emb': 3.5, 'scale_depth': 0.9, 'dim_model_base': 24,
                   'tie_word_embeddings': False, 'attention_bias': True, 'mlp_bias': True}),
    'qwen3_moe-d': ('qwen3_moe', {**MOE, 'num_experts': 6, 'use_sliding_window': True, 'sliding_window': 5}),
    'hyperclovax-b': ('hyperclovax', dict(logits_scaling=3.0, attention_multiplier=0.3, embedding_multiplier=2.0)),
    'phimoe-c': ('phimoe', dict(num_local_experts=4, rope_parameters=dict(
        rope_type='longrope', rope_theta=1e4, factor=4.0, original_max_position_embeddings=32, short_mscale=1.2,
                                                                          long_mscale=1.4,
        short_factor=[1 + 0.1 * i for i in range(6)], long_factor=[1.5 + 0.3 * i for i in range(6)]))),
    'gemma4_text': ('gemma4_text', {**GEMMA, 'global_head_dim': 24, 'use_double_wide_mlp': True}),
    'gemma4_text-b': ('gemma4_text', {**GEMMA, 'hidden_size_per_layer_input': 0, 'num_kv_shared_layers': 0,
                                      'num_hidden_layers': 4,
                      'layer_types': ['sliding_attention', 'full_attention'] * 2, 'global_head_dim': 24,
                                      'attention_k_eq_v': True,
                      'num_global_key_value_heads': 1, 'enable_moe_block': True, 'num_experts': 6, 'top_k_experts': 2,
                      'moe_intermediate_size': 20, 'final_logit_softcapping': 30.0}),
    'gemma4_text-c': ('gemma4_text', {**GEMMA, 'hidden_size_per_layer_input': 0, 'num_kv_shared_layers': 0,
                      'num_hidden_layers': 2, 'layer_types': ['sliding_attention', 'full_attention'],
                      'global_head_dim': 264}),
    'gemma3n_text': ('gemma3n_text', {**GEMMA, 'laurel_rank': 8, 'activation_sparsity_pattern': [0.5, 0.8, 0.0, 0.0,
                                                                                                 0.0, 0.0]}),
    'gemma3n_text-b': ('gemma3n_text', {**GEMMA, 'num_hidden_layers': 5, 'layer_types': None,
                                        'num_kv_shared_layers': 0, 'laurel_rank': 8,
                       'altup_num_inputs': 3, 'altup_active_idx': 1, 'altup_correct_scale': False,
                                        'attention_bias': True,
                       'intermediate_size': [64, 32, 64, 48, 64]}),
    'bitnet': ('bitnet', {}), 'bitnet-b': ('bitnet', dict(hidden_act='silu', tie_word_embeddings=True)),
    'stablelm-d': ('stablelm', dict(partial_rotary_factor=1.0)),
    'opt-b': ('opt', dict(ffn_dim=64, do_layer_norm_before=False, word_embed_proj_dim=32)),
    'opt-c': ('opt', dict(ffn_dim=64, enable_bias=False, _remove_final_layer_norm=True,
                          layer_norm_elementwise_affine=False,
              tie_word_embeddings=False)),
    'biogpt': ('biogpt', {}),
    'granite_swa': ('granite_swa', {**GRANITE, 'num_hidden_layers': 4, 'layer_rope_theta': [1e4, 0, 500, 1e4],
                                    'sliding_window': 5,
                    'tie_word_embeddings': False}),
    'granite_swa-b': ('granite_swa', {**GRANITE, 'attention_bias': True, 'mlp_bias': True, 'sliding_window': 7,
                      'layer_types': ['sliding_attention', 'full_attention', 'sliding_attention']}),
    'mellum': ('mellum', {**MELLUM, 'sliding_window': 5, 'mlp_layer_types': ['sparse', 'dense', 'sparse'],
               'layer_types': ['sliding_attention', 'full_attention', 'sliding_attention'], 'rope_parameters': {
                   'full_attention': dict(rope_type='yarn', rope_theta=5e5, factor=4.0,
                                          original_max_position_embeddings=16),
                   'sliding_attention': dict(rope_type='default', rope_theta=100.0)}}),
    'mellum-b': ('mellum', {**MELLUM, 'num_hidden_layers': 2, 'attention_bias': True, 'sliding_window': None,
                 'tie_word_embeddings': True}),
    'granitemoe_swa': ('granitemoe_swa', {**GRANITE, 'num_local_experts': 4, 'sliding_window': 5,
                       'layer_rope_theta': [1e4, 0, 500]}),
    'granitemoe_swa-b': ('granitemoe_swa', {**GRANITE, 'num_local_experts': 4, 'num_experts_per_tok': 3,
                                            'sliding_window': 7,
                         'shared_intermediate_size': 20, 'attention_bias': True, 'tie_word_embeddings': True}),
    'xglm': ('xglm', dict(d_model=48, num_layers=3, attention_heads=4, ffn_dim=64)),
    'xglm-b': ('xglm', dict(d_model=48, num_layers=3, attention_heads=4, ffn_dim=64, scale_embedding=False,
                            pad_token_id=6,
               activation_function='relu')),
    'dbrx': ('dbrx', dict(**DBRX, attn_config=dict(kv_n_heads=2, clip_qkv=0.8, rope_theta=1e4),
                          ffn_config=dict(ffn_hidden_size=24, moe_top_k=2))),
    'dbrx-b': ('dbrx', dict(**DBRX, attn_config=dict(kv_n_heads=1, clip_qkv=2.0, rope_theta=500.0),
                            rope_parameters=dict(rope_type='default', rope_theta=500.0),
               ffn_config=dict(ffn_hidden_size=20, moe_num_experts=6, moe_top_k=3, moe_normalize_expert_weights=None,
                               ffn_act_fn=dict(name='gelu')))),
    'hy_v3': ('hy_v3', HUNYUAN),
    'hy_v3-b': ('hy_v3', {**HUNYUAN, 'attention_bias': True, 'mlp_bias': True, 'num_shared_experts': 2,
                          'router_scaling_factor': 1.3,
                'tie_word_embeddings': True, 'mlp_layer_types': ['sparse', 'dense', 'sparse']}),
    'openai-gpt': ('openai-gpt', dict(n_embd=48, n_layer=3, n_head=4, n_positions=128)),
    'recurrent_gemma': ('recurrent_gemma', dict(attention_window_size=7)),
    'recurrent_gemma-b': ('recurrent_gemma', dict(num_hidden_layers=4, attention_window_size=9, lru_width=56,
        conv1d_width=3,
                          block_types=['attention', 'recurrent'], attention_bias=True, logits_soft_cap=4.0)),
    'minimax': ('minimax', dict(num_local_experts=4)),
    'minimax-b': ('minimax', dict(num_local_experts=4, head_dim=20, layer_types=['full_attention', 'linear_attention',
        'linear_attention'],
                  full_attn_alpha_factor=0.7, full_attn_beta_factor=1.3, linear_attn_alpha_factor=0.8,
                      linear_attn_beta_factor=1.2,
                  mlp_alpha_factor=0.9, mlp_beta_factor=1.4, block_size=8, sliding_window=6)),
    'zamba2': ('zamba2', {**ZAMBA, 'mamba_d_state': 4, 'use_mem_rope': True, 'layers_block_type': ['linear_attention',
        'hybrid', 'hybrid']}),
    'zamba2-b': ('zamba2', {**ZAMBA, 'mamba_ngroups': 2, 'use_shared_attention_adapter': True,
                 'add_bias_linear': True, 'hidden_act': 'silu', 'tie_word_embeddings': False,
                 'layers_block_type': ['linear_attention', 'hybrid', 'hybrid']}),
    'jetmoe': ('jetmoe', dict(kv_channels=12, num_local_experts=4)),
    'jetmoe-b': ('jetmoe', dict(kv_channels=16, num_local_experts=5, num_experts_per_tok=3, activation_function='gelu',
                 rms_norm_eps=1e-3, tie_word_embeddings=False)),
    'cohere2_moe': ('cohere2_moe', {**COHERE, 'head_dim': 12, 'num_shared_experts': 2, 'sliding_window_pattern': 3}),
    'cohere2_moe-b': ('cohere2_moe', {**COHERE, 'num_hidden_layers': 4, 'num_shared_experts': 1, 'rms_norm_eps': 1e-5,
                      'shared_expert_combination_strategy': 'sum', 'expert_selection_fn': 'sigmoid',
                          'attention_bias': True,
                      'mlp_layer_types': ['dense', 'sparse', 'dense', 'sparse'], 'prefix_dense_intermediate_size': 40,
                      'layer_types': ['full_attention', 'sliding_attention', 'full_attention', 'full_attention']}),
    'modernbert-decoder': ('modernbert-decoder', dict(local_attention=10)),
    'modernbert-decoder-b': ('modernbert-decoder', dict(
        local_attention=7, norm_bias=True, attention_bias=True, mlp_bias=True, classifier_bias=True, decoder_bias=False,
        tie_word_embeddings=False, classifier_activation='silu', hidden_activation='relu',
        layer_types=['sliding_attention', 'full_attention', 'sliding_attention'], rope_parameters={
            'full_attention': dict(rope_type='linear', factor=2.0, rope_theta=500.0),
            'sliding_attention': dict(rope_type='default', rope_theta=100.0)})),
    'gpt_neox_japanese': ('gpt_neox_japanese', {}),
    'gpt_neox_japanese-b': ('gpt_neox_japanese', dict(
        intermediate_multiple_size=2, hidden_act='relu', tie_word_embeddings=False,
        rope_parameters=dict(rope_type='default', rope_theta=300.0, partial_rotary_factor=0.5))),
    'ctrl': ('ctrl', dict(n_embd=48, n_layer=3, n_head=4, n_positions=128, dff=64)),
    'aria_text': ('aria_text', dict(moe_num_experts=4)),
    'aria_text-b': ('aria_text', dict(moe_num_experts=5, moe_topk=3, moe_num_shared_experts=1, attention_bias=True,
                                      mlp_bias=True,
                    tie_word_embeddings=True)),
    'olmo_hybrid': ('olmo_hybrid', {**OLMO, 'rope_parameters': dict(rope_type='default', rope_theta=None),
                                    'layer_types': ['linear_attention', 'full_attention', 'linear_attention']}),
    'olmo_hybrid-b': ('olmo_hybrid', {**OLMO, 'linear_allow_neg_eigval': False, 'linear_conv_kernel_dim': 3,
                                      'attention_bias': True,
                      'linear_num_value_heads': 2, 'rope_parameters': dict(rope_type='default', rope_theta=500.0)}),
    'kimi_linear': ('kimi_linear', {**KIMI, 'layer_types': ['linear_attention', 'full_attention', 'linear_attention']}),
    'kimi_linear-b': ('kimi_linear', {**KIMI, 'q_lora_rank': 20, 'linear_conv_kernel_dim': 3, 'num_expert_group': 3,
                                      'topk_group': 2,
                      'moe_renormalize': False, 'routed_scaling_factor': 1.3, 'attention_bias': True,
                                      'num_hidden_layers': 5,
                      'mlp_layer_types': ['sparse', 'dense', 'sparse', 'dense', 'sparse']}),
    'axk1': ('axk1', {**LATENT, 'v_head_dim': 16, 'n_routed_experts': 8, 'n_group': 4, 'topk_group': 2,
                      'num_experts_per_tok': 2,
             'moe_intermediate_size': 24}),
    'mistral4': ('mistral4', {**LATENT, 'v_head_dim': 16, 'n_routed_experts': 6, 'num_experts_per_tok': 2,
                              'moe_intermediate_size': 24,
                 'rope_parameters': dict(rope_type='yarn', rope_theta=1e4, factor=4.0,
                                         original_max_position_embeddings=8,
                                         beta_fast=32.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0,
                                         llama_4_scaling_beta=0.3)}),
    'mistral4-b': ('mistral4', {**LATENT, 'v_head_dim': 8, 'q_lora_rank': None, 'n_routed_experts': 8, 'n_group': 4,
                                'topk_group': 2,
                   'num_experts_per_tok': 3, 'moe_intermediate_size': 24, 'first_k_dense_replace': 1,
                                'norm_topk_prob': False,
                   'routed_scaling_factor': 1.7, 'rope_interleave': False, 'attention_bias': True,
                                'n_shared_experts': 2}),
    'laguna': ('laguna', {**LAGUNA, 'layer_types': ['full_attention', 'sliding_attention', 'full_attention'],
               'num_attention_heads_per_layer': [4, 6, 2]}),
    'laguna-b': ('laguna', {**LAGUNA, 'gating': 'per-element', 'attention_bias': True, 'moe_routed_scaling_factor': 1.7,
                 'moe_router_logit_softcapping': 0.8, 'mlp_layer_types': ['sparse', 'dense', 'sparse'],
                 'layer_types': ['sliding_attention'] * 3, 'tie_word_embeddings': True, 'rope_parameters': {
                     'full_attention': dict(rope_type='default', rope_theta=500.0),
                     'sliding_attention': dict(rope_type='yarn', rope_theta=100.0, factor=4.0,
                                               partial_rotary_factor=0.5,
                                               original_max_position_embeddings=16)}}),
    'mimo_v2_flash': ('mimo_v2_flash', MIMO),
    'mimo_v2_flash-b': ('mimo_v2_flash', {**MIMO, 'v_head_dim': 24, 'attention_value_scale': None,
                                          'num_key_value_heads': 1,
                        'n_group': 3, 'topk_group': 2, 'norm_topk_prob': False, 'routed_scaling_factor': 1.7,
                                          'attention_bias': True,
                        'layer_types': ['sliding_attention', 'full_attention', 'sliding_attention'],
                        'mlp_layer_types': ['sparse', 'dense', 'sparse'], 'tie_word_embeddings': True}),
}


ENCODER = {k: v for k, v in SIZES.items() if k != 'num_key_value_heads'}
DEBERTA = dict(relative_attention=True, pos_att_type=['p2c', 'c2p'], position_biased_input=False, type_vocab_size=0)
MOBILE = dict(embedding_size=20, intra_bottleneck_size=24)
XLNET = dict(d_model=48, n_layer=2, n_head=4, d_inner=64, pad_token_id=0)
PAGED = dict(pad_token_id=1, max_position_embeddings=60, max_2d_position_embeddings=1024, coordinate_size=10,
             shape_size=4,
             input_size=16, patch_size=4, rel_2d_pos_bins=12, max_rel_2d_pos=60)
LAID = dict(pad_token_id=1, max_position_embeddings=60, max_2d_position_embeddings=30)
# On pages: with boxes of words, and with the page itself.
BOXED, LOOKED = ('layoutlm-b', 'layoutlmv3', 'lilt'), ('layoutlmv3', 'layoutlmv3-c')
ENCODERS = {
    'mpnet': ('mpnet', dict(pad_token_id=1, max_position_embeddings=60)),
    'xlnet': ('xlnet', dict(XLNET, ff_activation='relu', clamp_len=5, layer_norm_eps=1e-3)),
    'albert': ('albert', dict(embedding_size=20, num_hidden_layers=4)),
    'albert-b': ('albert', dict(embedding_size=48, num_hidden_layers=4, num_hidden_groups=2, inner_group_num=2,
                                hidden_act='gelu')),
    'electra': ('electra', dict(embedding_size=20)),
    'electra-b': ('electra', dict(embedding_size=48, type_vocab_size=1)),
    'xlm-roberta': ('xlm-roberta', dict(pad_token_id=1, max_position_embeddings=60)),
    'camembert': ('camembert', dict(pad_token_id=1, max_position_embeddings=60)),
    'distilbert': ('distilbert', dict(dim=48, n_layers=3, n_heads=4, hidden_dim=64)),
    'deberta-v3': ('deberta-v2', {**DEBERTA, 'share_att_key': True, 'position_buckets': 8,
        'norm_rel_ebd': 'layer_norm'}),
    'deberta-v2': ('deberta-v2', {**DEBERTA, 'position_buckets': 8, 'norm_rel_ebd': 'layer_norm', 'conv_kernel_size': 3,
                   'conv_act': 'gelu', 'share_att_key': True, 'type_vocab_size': 2}),
    'deberta-v2-b': ('deberta-v2', {**DEBERTA, 'position_biased_input': True, 'max_relative_positions': 12,
        'embedding_size': 20,
                     'hidden_act': 'relu'}),
    'deberta-v2-c': ('deberta-v2', {**DEBERTA, 'pos_att_type': ['c2p'], 'share_att_key': True, 'position_buckets': 16}),
    'deberta-v2-d': ('deberta-v2', {**DEBERTA, 'pos_att_type': ['p2c'], 'max_relative_positions': 7,
        'position_buckets': 4,
                     'max_position_embeddings': 64}),
    'deberta-v2-e': ('deberta-v2', {**DEBERTA, 'relative_attention': False, 'pos_att_type': None,
        'position_biased_input': True}),
    'deberta': ('deberta', {**DEBERTA, 'max_relative_positions': 9, 'type_vocab_size': 2}),
    'deberta-b': ('deberta', {**DEBERTA, 'pos_att_type': 'c2p', 'position_biased_input': True}),
    'ernie': ('ernie', dict(use_task_id=True)),
    'ernie-b': ('ernie', dict(use_task_id=False, hidden_act='relu')),
    'data2vec-text': ('data2vec-text', dict(pad_token_id=1, max_position_embeddings=60)),
    'xlm-roberta-xl': ('xlm-roberta-xl', dict(pad_token_id=1, max_position_embeddings=60)),
    'roberta-prelayernorm': ('roberta-prelayernorm', dict(pad_token_id=1, max_position_embeddings=60)),
    'megatron-bert': ('megatron-bert', {}),
    'rembert': ('rembert', dict(input_embedding_size=20)),
    'nomic_bert-b': ('nomic_bert', dict(head_dim=8)),
    'gte': ('gte', dict(type_vocab_size=0)),
    'gte-b': ('gte', dict(type_vocab_size=2, hidden_act='silu', rope_parameters=dict(rope_type='linear',
                                                                                     rope_theta=500.0, factor=2.0))),
    # Decoders that make vectors, without a head; the second looks both ways.
    'decoder-qwen3': ('qwen3', dict(num_key_value_heads=2, head_dim=16, num_hidden_layers=2)),
    'decoder-gemma3': ('gemma3_text', dict(num_key_value_heads=2, head_dim=16, num_hidden_layers=2, sliding_window=8,
                                           use_bidirectional_attention=True,
                                           layer_types=['sliding_attention', 'full_attention'])),
    'decoder-gemma3-b': ('gemma3_text', dict(num_key_value_heads=2, head_dim=16, num_hidden_layers=2, sliding_window=8,
                                             use_bidirectional_attention=True, query_pre_attn_scalar=16,
                                             layer_types=['sliding_attention', 'full_attention'])),
    'privacy': ('openai_privacy_filter', dict(num_key_value_heads=2, head_dim=16, sliding_window=4, num_local_experts=4,
                                              num_experts_per_tok=2)),
    'clip_text': ('clip_text_model', {}),
    'layoutlm-b': ('layoutlm', dict(max_2d_position_embeddings=30)),
    'layoutlmv3': ('layoutlmv3', PAGED),
    'layoutlmv3-b': ('layoutlmv3', dict(PAGED, has_spatial_attention_bias=False, rel_pos_bins=8, max_rel_pos=10,
                                        hidden_act='relu', layer_norm_eps=1e-3)),
    'layoutlmv3-c': ('layoutlmv3', dict(PAGED, has_relative_attention_bias=False, has_spatial_attention_bias=False)),
    'lilt': ('lilt', LAID),
    'lilt-b': ('lilt', dict(LAID, channel_shrink_ratio=2, type_vocab_size=1, hidden_act='relu', layer_norm_eps=1e-3)),
    'esm': ('esm', dict(pad_token_id=1, mask_token_id=9, token_dropout=True, position_embedding_type='rotary')),
    'esm-b': ('esm', dict(pad_token_id=1, mask_token_id=9, emb_layer_norm_before=True, max_position_embeddings=60)),
    'roformer': ('roformer', dict(embedding_size=20)),
    'layoutlm': ('layoutlm', dict(max_2d_position_embeddings=9)),
    'big_bird': ('big_bird', dict(rescale_embeddings=True, block_size=4)),
    'longformer': ('longformer', dict(pad_token_id=1, max_position_embeddings=60, attention_window=[6, 4, 8])),
    'mobilebert': ('mobilebert', {**MOBILE, 'num_feedforward_networks': 2}),
    'mobilebert-b': ('mobilebert', {**MOBILE, 'use_bottleneck_attention': True, 'normalization_type': 'layer_norm',
                                    'trigram_input': False, 'classifier_activation': False}),
    'jina_embeddings_v3': ('jina_embeddings_v3', dict(pad_token_id=1)),
    'convbert': ('convbert', dict(embedding_size=20, conv_kernel_size=5)),
    'squeezebert': ('squeezebert', dict(embedding_size=48, q_groups=2, v_groups=3)),
    'squeezebert-b': ('squeezebert', dict(embedding_size=48, q_groups=1, post_attention_groups=2, output_groups=1,
                                          intermediate_groups=8, hidden_act='relu', layer_norm_eps=0.3)),
    'ibert': ('ibert', dict(pad_token_id=1, max_position_embeddings=60)),
    'ibert-b': ('ibert', dict(pad_token_id=1, max_position_embeddings=60, hidden_act='gelu', type_vocab_size=1,
                              layer_norm_eps=1e-3)),
    'luke': ('luke', dict(pad_token_id=1, max_position_embeddings=60, entity_vocab_size=9, entity_emb_size=16)),
    'luke-b': ('luke', dict(pad_token_id=1, max_position_embeddings=60, entity_vocab_size=9, entity_emb_size=16,
                            use_entity_aware_attention=False, hidden_act='relu')),
    'splinter': ('splinter', {}),
    'xmod': ('xmod', dict(pad_token_id=1, max_position_embeddings=60, languages=['en_XX', 'de_DE'],
                          default_language='de_DE')),
    'xmod-b': ('xmod', dict(pad_token_id=1, max_position_embeddings=60, languages=['en_XX'], pre_norm=True,
                            default_language='en_XX', adapter_layer_norm=True, adapter_reduction_factor=4, hidden_act='relu',
                            ln_before_adapter=False)),
    'xmod-c': ('xmod', dict(pad_token_id=1, max_position_embeddings=60, languages=['en_XX', 'fr_XX'],
                            default_language='en_XX', adapter_reuse_layer_norm=False, layer_norm_eps=1e-3)),
    'nystromformer': ('nystromformer', dict(pad_token_id=1, conv_kernel_size=7)),
    'nystromformer-b': ('nystromformer', dict(pad_token_id=1, conv_kernel_size=3, hidden_act='relu', type_vocab_size=1,
                                              layer_norm_eps=1e-2)),
    'splinter-b': ('splinter', dict(hidden_act='gelu_new', type_vocab_size=1, layer_norm_eps=1e-3)),
    'dpr': ('dpr', {}),
    'dpr-b': ('dpr', dict(projection_dim=20, hidden_act='relu')),
    'xlm': ('xlm', dict(emb_dim=48, n_layers=3, n_heads=4, n_langs=2, pad_token_id=2)),
    'xlm-b': ('xlm', dict(emb_dim=48, n_layers=2, n_heads=2, gelu_activation=False, layer_norm_eps=1e-3,
                          sinusoidal_embeddings=True, pad_token_id=2)),
    'flaubert': ('flaubert', dict(emb_dim=48, n_layers=3, n_heads=4, pad_token_id=2)),
    'flaubert-b': ('flaubert', dict(emb_dim=48, n_layers=2, n_heads=4, gelu_activation=False,
                                    layer_norm_eps=1e-3, pad_token_id=2)),
    'fnet': ('fnet', dict(pad_token_id=3)),
    'fnet-b': ('fnet', dict(pad_token_id=3, hidden_act='relu', type_vocab_size=1, layer_norm_eps=1e-3)),
    't5-encoder': ('t5', dict(d_model=48, d_kv=12, d_ff=64, num_layers=2, num_heads=4,
                              feed_forward_proj='gated-gelu')),
    'eurobert': ('eurobert', {}), 'modernbert': ('modernbert', dict(local_attention=8)),
    'eurobert-b': ('eurobert', dict(num_key_value_heads=2, head_dim=16, attention_bias=True, mlp_bias=True,
                                    hidden_act='gelu',
                   rope_parameters=dict(rope_type='default', rope_theta=250000.0))),
}
SHORT_T5 = dict(d_model=32, d_kv=8, d_ff=40, num_layers=2, num_decoder_layers=1, num_heads=4)
SHORT_BART = dict(d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=2,
                  encoder_ffn_dim=40, decoder_ffn_dim=24, pad_token_id=1, eos_token_id=2, decoder_start_token_id=2,
                  forced_eos_token_id=None)
CLASSIFIERS = {
    'bert': ('bert', dict(num_labels=3)),
    'xlm-roberta': ('xlm-roberta', dict(num_labels=1, pad_token_id=1, max_position_embeddings=60)),
    'distilbert': ('distilbert', dict(dim=48, n_layers=2, n_heads=4, hidden_dim=64, num_labels=2)),
    'electra': ('electra', dict(embedding_size=20, num_labels=2)),
    'albert': ('albert', dict(embedding_size=20, num_labels=2)),
    'mpnet': ('mpnet', dict(pad_token_id=1, max_position_embeddings=60, num_labels=2)),
    'deberta-v2': ('deberta-v2', {**DEBERTA, 'share_att_key': True, 'position_buckets': 8, 'norm_rel_ebd': 'layer_norm',
                   'num_labels': 3, 'pooler_hidden_act': 'gelu'}),
    'esm': ('esm', dict(num_labels=2, pad_token_id=1, mask_token_id=9, position_embedding_type='rotary')),
    'roformer': ('roformer', dict(num_labels=2)),
    'layoutlmv3': ('layoutlmv3', dict(PAGED, num_labels=3)),
    'lilt': ('lilt', dict(LAID, num_labels=2)),
    'big_bird': ('big_bird', dict(num_labels=2, attention_type='original_full')),
    'longformer': ('longformer', dict(num_labels=3, pad_token_id=1, max_position_embeddings=60,
                                      attention_window=[6, 4, 8])),
    'mobilebert': ('mobilebert', {**MOBILE, 'num_labels': 2, 'classifier_activation': False}),
    'eurobert': ('eurobert', dict(num_labels=3)),
    'eurobert-b': ('eurobert', dict(num_labels=2, classifier_pooling='mean')),
    'eurobert-c': ('eurobert', dict(num_labels=2, classifier_pooling='bos')),
    'nomic_bert': ('nomic_bert', dict(num_labels=2)),
    'gte': ('gte', dict(num_labels=2)),
    'xmod': ('xmod', dict(num_labels=2, pad_token_id=1, max_position_embeddings=60, default_language='en_XX')),
    'nystromformer': ('nystromformer', dict(num_labels=3, conv_kernel_size=9)),
    'modernbert': ('modernbert', dict(num_labels=2, local_attention=8)),
    'modernbert-b': ('modernbert', dict(num_labels=2, local_attention=8, classifier_pooling='mean',
        classifier_bias=True,
                     classifier_activation='relu', norm_bias=True)),
    'bart': ('bart', dict(num_labels=3, pad_token_id=1, eos_token_id=2, d_model=32, encoder_layers=1, decoder_layers=2,
                          encoder_attention_heads=4, decoder_attention_heads=2, encoder_ffn_dim=40, decoder_ffn_dim=24,
                          decoder_start_token_id=2, forced_eos_token_id=None)),
    'mbart': ('mbart', dict(num_labels=2, pad_token_id=1, eos_token_id=2, d_model=32, encoder_layers=1,
                            decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=2, encoder_ffn_dim=40,
                            decoder_ffn_dim=24, forced_eos_token_id=None)),
    'xlnet': ('xlnet', dict(XLNET, num_labels=3)),
    'xlnet-b': ('xlnet', dict(XLNET, num_labels=2, summary_activation='relu')),
    't5': ('t5', dict(num_labels=3, eos_token_id=1, decoder_start_token_id=0, **SHORT_T5)),
    'umt5': ('umt5', dict(num_labels=2, eos_token_id=1, decoder_start_token_id=5, feed_forward_proj='gated-gelu',
                          **SHORT_T5)),
    'modernbert-c': ('modernbert', dict(num_labels=1, local_attention=8, classifier_pooling='mean')),
    # Decoders, whose heads read the last token.
    'llama': ('llama', dict(num_labels=3, num_key_value_heads=2)),
    'qwen3': ('qwen3', dict(num_labels=1, num_key_value_heads=2, head_dim=16)),
    'gemma2': ('gemma2', dict(num_labels=2, num_key_value_heads=2, head_dim=16, sliding_window=7)),
    'gpt2': ('gpt2', dict(num_labels=2)),
    'opt': ('opt', dict(num_labels=2, ffn_dim=64, word_embed_proj_dim=20)),
    'ctrl': ('ctrl', dict(n_embd=48, n_layer=2, n_head=4, dff=64, n_positions=64, num_labels=3)),
}
# Heads for tokens: words behind masks, classes, spans.
SHORT = dict(num_hidden_layers=1)
COUNTED = dict(**SHORT, pad_token_id=1, max_position_embeddings=60)
TOKENS = {
    'words': (AutoModelForMaskedLM, {
        'bert': ('bert', {**SHORT, 'hidden_act': 'relu'}),
        'bert-b': ('bert', {**SHORT, 'tie_word_embeddings': False}),
        'roberta': ('roberta', {**COUNTED, 'hidden_act': 'relu'}),
        'roberta-b': ('roberta', {**COUNTED, 'tie_word_embeddings': False}),
        'distilbert': ('distilbert', dict(dim=48, n_layers=1, n_heads=4, hidden_dim=64)),
        'xlm-w': ('xlm', dict(emb_dim=48, n_layers=1, n_heads=4, n_langs=2, pad_token_id=2)),
        'electra': ('electra', {**SHORT, 'embedding_size': 20, 'hidden_act': 'relu'}),
        'albert': ('albert', {**SHORT, 'embedding_size': 20}),
        'rembert': ('rembert', {**SHORT, 'input_embedding_size': 20, 'output_embedding_size': 24}),
        'deberta-v2': ('deberta-v2', {**DEBERTA, **SHORT, 'position_buckets': 8}),
        'modernbert': ('modernbert', {**SHORT, 'local_attention': 8, 'classifier_activation': 'relu'}),
        'modernbert-b': ('modernbert', {**SHORT, 'decoder_bias': False, 'classifier_bias': True, 'norm_bias': True,
                                        'tie_word_embeddings': False}),
        'eurobert': ('eurobert', {**SHORT, 'mlp_bias': True}),
        'eurobert-b': ('eurobert', {**SHORT, 'tie_word_embeddings': True}),
        'nomic_bert': ('nomic_bert', SHORT),
        'gte': ('gte', SHORT),
        'xmod': ('xmod', {**COUNTED, 'languages': ['en_XX', 'de_DE'], 'default_language': 'en_XX'}),
        'nystromformer': ('nystromformer', {**SHORT, 'conv_kernel_size': 5}),
        'esm': ('esm', {**COUNTED, 'mask_token_id': 9, 'token_dropout': True}),
        'longformer': ('longformer', {**COUNTED, 'attention_window': [4]}),
        'mobilebert': ('mobilebert', {**MOBILE, **SHORT}),
        'convbert': ('convbert', {**SHORT, 'embedding_size': 48, 'hidden_act': 'relu'}),
        'jina_embeddings_v3': ('jina_embeddings_v3', {**SHORT, 'pad_token_id': 1}),
    }),
    'classes': (AutoModelForTokenClassification, {
        'bert-c': ('bert', {**SHORT, 'num_labels': 3}),
        'modernbert-c': ('modernbert', {**SHORT, 'num_labels': 4}),
        'layoutlmv3-c': ('layoutlmv3', {**SHORT, **PAGED, 'num_labels': 3}),
        'layoutlmv3-d': ('layoutlmv3', {**SHORT, **PAGED, 'num_labels': 10}),
        'lilt-c': ('lilt', {**SHORT, **LAID, 'num_labels': 3}),
        'distilbert-c': ('distilbert', dict(dim=48, n_layers=1, n_heads=4, hidden_dim=64, num_labels=2)),
        'qwen2-c': ('qwen2', {**SHORT, 'num_key_value_heads': 2, 'num_labels': 3}),
        'gpt2-c': ('gpt2', {**SHORT, 'num_labels': 2}),
        'privacy-c': ('openai_privacy_filter', {
            **SHORT, 'num_key_value_heads': 1, 'head_dim': 8, 'sliding_window': 3, 'num_local_experts': 4,
            'num_labels': 5,
            'num_experts_per_tok': 3, 'rms_norm_eps': 1e-3}),
        't5-c': ('t5', dict(SHORT_T5, num_labels=3)),
        'xlnet-c': ('xlnet', dict(XLNET, num_labels=2)),
    }),
    'spans': (AutoModelForQuestionAnswering, {
        'flaubert-q': ('flaubert', dict(emb_dim=48, n_layers=1, n_heads=4, pad_token_id=2)),
        'roberta-q': ('roberta', COUNTED),
        'layoutlmv3-q': ('layoutlmv3', {**SHORT, **PAGED}),
        'bart-q': ('bart', SHORT_BART),
        'mbart-q': ('mbart', SHORT_BART),
        'led-q': ('led', dict(SHORT_BART, attention_window=[4], max_encoder_position_embeddings=40,
                              max_decoder_position_embeddings=30)),
        't5-q': ('t5', dict(SHORT_T5, decoder_start_token_id=4)),
        'mt5-q': ('mt5', dict(SHORT_T5, decoder_start_token_id=0, tie_word_embeddings=False)),
        'modernbert-q': ('modernbert', SHORT),
    }),
}


def token_answers(model, vocab, seed):
    ids = torch.randint(3, vocab, (2, 12), generator=torch.Generator().manual_seed(seed))
    mask = torch.ones_like(ids)
    ids[1, 8:], mask[1, 8:] = model.config.pad_token_id, 0
    with torch.no_grad():
        out = model(ids, attention_mask=mask)
    logits = out.logits if hasattr(out, 'logits') else torch.stack([out.start_logits, out.end_logits], -1)
    found = {'input_ids': ids, 'attention_mask': mask, 'logits': logits}
    return {k: v.numpy().astype(np.float32 if v.is_floating_point() else np.int32) for k, v in found.items()}


def classifier_answers(model, vocab, seed):
    g = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, vocab, (2, 24), generator=g)
    mask = torch.ones_like(ids)
    ids[1, 17:], mask[1, 17:] = model.config.pad_token_id, 0
    if model.config.is_encoder_decoder:  # whose heads look at the last end
        ids[0, -1] = ids[1, 16] = model.config.eos_token_id
    found = {'input_ids': ids, 'attention_mask': mask}
    if getattr(model.config, 'type_vocab_size', 0) > 1 or model.config.model_type == 'xlnet':
        found['token_type_ids'] = (torch.arange(24) > 9).long().expand(2, 24).contiguous()
    with torch.no_grad():
        found['logits'] = model(**found).logits
        if model.config.model_type == 'xlnet':  # which reads the last place, padding or not
            found['logits'][1] = model(**{k: v[1:, :17] for k, v in found.items() if k != 'logits'}).logits
    return {k: v.numpy().astype(np.float32 if v.is_floating_point() else np.int32) for k, v in found.items()}


def pages_of(model, ids, mask, seed, g):
    name = next((n for n in {*BOXED, *LOOKED} if zlib.crc32(n.encode()) == seed), None)
    found = {}
    if name in BOXED:
        most = min(model.config.max_2d_position_embeddings, 1001)
        corners = torch.randint(0, most, (2, *ids.shape, 2), generator=g).sort(0).values
        found['boxes'] = torch.cat([corners[0], corners[1]], -1) * mask[..., None]
    if name in LOOKED:
        found['pixels'] = torch.randn(2, 3, 16, 16, generator=g)
    return found


def encoder_answers(model, vocab, seed):
    g = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, vocab, (2, 24), generator=g)
    mask = torch.ones_like(ids)
    ids[1, 17:], mask[1, 17:] = model.config.pad_token_id, 0
    # FNet has no mask.
    known = {} if model.config.model_type == 'fnet' else {'attention_mask': mask}
    pages = pages_of(model, ids, mask, seed, g)
    known |= {'bbox' if k == 'boxes' else 'pixel_values': v for k, v in pages.items()}
    with torch.no_grad():
        out = model(ids, **known, **({'output_hidden_states': True} if model.config.model_type == 'dpr' else {}))
    hidden = out.hidden_states[-1] if model.config.model_type == 'dpr' else out.last_hidden_state
    found = {'input_ids': ids, 'attention_mask': mask, 'hidden': hidden[:, :ids.shape[1]], **pages}
    if getattr(out, 'pooler_output', None) is not None:
        found['pooled'] = out.pooler_output
    return {k: v.numpy().astype(np.float32 if v.is_floating_point() else np.int32) for k, v in found.items()}


T5 = dict(vocab_size=96, d_model=48, d_kv=12, d_ff=64, num_layers=2, num_heads=4, pad_token_id=0, eos_token_id=1,
          decoder_start_token_id=0)
BART = dict(vocab_size=96, d_model=48, encoder_layers=3, decoder_layers=2, encoder_attention_heads=4,
            decoder_attention_heads=6,
            encoder_ffn_dim=64, decoder_ffn_dim=40, max_position_embeddings=40, pad_token_id=1, bos_token_id=0,
            eos_token_id=2,
            decoder_start_token_id=2, forced_eos_token_id=None)
LED = {**{k: v for k, v in BART.items() if k != 'max_position_embeddings'}, 'max_encoder_position_embeddings': 40,
       'max_decoder_position_embeddings': 30}
SWITCH = {**T5, 'num_layers': 4, 'num_decoder_layers': 4, 'num_experts': 3, 'expert_capacity': 6}
GEMMA_SIDE = dict(vocab_size=96, hidden_size=48, intermediate_size=40, num_hidden_layers=3, num_attention_heads=4,
                  num_key_value_heads=2, head_dim=8, max_position_embeddings=64, sliding_window=4,
                  query_pre_attn_scalar=12, pad_token_id=0, bos_token_id=2, eos_token_id=1)
GEMMA_SIDES = dict(vocab_size=96, pad_token_id=0, bos_token_id=2, eos_token_id=1, decoder_start_token_id=2)
# What generate() is told besides: every rule of a choice once, together where they meet.
RULES = {
    'bart-b': dict(early_stopping=True),
    'mbart': dict(early_stopping='never'),
    't5-b': dict(repetition_penalty=1.7, bad_words_ids=[[1], [40], [17, 3]], forced_bos_token_id=9,
                 begin_suppress_tokens=[5, 8]),
    't5-c': dict(no_repeat_ngram_size=2, suppress_tokens=[33, 44], min_length=6, forced_eos_token_id=1),
    't5-d': dict(min_new_tokens=10, begin_suppress_tokens=[20, 60]),
    'bart': dict(forced_bos_token_id=0, forced_eos_token_id=2, no_repeat_ngram_size=3),
    'marian': dict(bad_words_ids=[[1]], forced_eos_token_id=2),
    'blenderbot-c': dict(encoder_no_repeat_ngram_size=1),
}
SEQ2SEQ = {
    't5-b': ('t5', {**T5, 'feed_forward_proj': 'gated-silu', 'relative_attention_num_buckets': 8}),
    't5-c': ('mt5', {**T5, 'relative_attention_max_distance': 10, 'd_kv': 16, 'tie_word_embeddings': False}),
    't5-d': ('umt5', {**T5, 'decoder_start_token_id': 7}), 't5-e': ('t5', T5),
    't5-f': ('t5', {**T5, 'feed_forward_proj': 'gated-gelu', 'num_layers': 3, 'num_decoder_layers': 2,
                    'tie_word_embeddings': False}),
    'bart': ('bart', BART),
    'bart-b': ('bart', {**BART, 'scale_embedding': True, 'activation_function': 'relu', 'encoder_layers': 2}),
    'mbart': ('mbart', BART),
    'mbart-b': ('mbart', {**BART, 'scale_embedding': True, 'activation_function': 'relu',
                          'tie_word_embeddings': False}),
    'marian': ('marian', {**BART, 'scale_embedding': True, 'activation_function': 'swish',
                          'decoder_start_token_id': 1}),
    'marian-b': ('marian', {**BART, 'share_encoder_decoder_embeddings': False, 'decoder_vocab_size': 80,
                 'tie_word_embeddings': False}),
    'pegasus': ('pegasus', {**BART, 'scale_embedding': True, 'activation_function': 'relu',
                            'decoder_start_token_id': 1}),
    'm2m_100': ('m2m_100', {**BART, 'scale_embedding': True, 'activation_function': 'relu'}),
    'm2m_100-b': ('m2m_100', {**BART, 'pad_token_id': 5, 'tie_word_embeddings': False}),
    'blenderbot': ('blenderbot', {**BART, 'pad_token_id': 0, 'decoder_start_token_id': 1,
        'encoder_no_repeat_ngram_size': 0}),
    'blenderbot-small': ('blenderbot-small', {**BART, 'pad_token_id': 0, 'decoder_start_token_id': 1,
        'scale_embedding': True}),
    'blenderbot-c': ('blenderbot', {**BART, 'pad_token_id': 0, 'decoder_start_token_id': 1, 'encoder_layers': 1,
        'encoder_no_repeat_ngram_size': 0}),
    'plbart': ('plbart', BART),
    'mvp': ('mvp', {**BART, 'scale_embedding': True}),
    'pegasus-b': ('pegasus', {**BART, 'activation_function': 'gelu_new', 'encoder_layers': 2}),
    'switch': ('switch_transformers', {**SWITCH, 'num_sparse_encoder_layers': 2, 'num_sparse_decoder_layers': 2}),
    'switch-b': ('switch_transformers', {**SWITCH, 'num_sparse_encoder_layers': 4, 'num_sparse_decoder_layers': 1,
                                         'router_bias': True, 'tie_word_embeddings': False}),
    'longt5': ('longt5', {**T5, 'local_radius': 3}),
    'longt5-b': ('longt5', {**T5, 'local_radius': 4, 'encoder_attention_type': 'transient-global',
                            'global_block_size': 4, 'feed_forward_proj': 'gated-gelu', 'tie_word_embeddings': False}),
    'led': ('led', {**LED, 'attention_window': [4, 8, 12]}),
    'led-b': ('led', {**LED, 'attention_window': 6, 'tie_word_embeddings': False, 'activation_function': 'relu'}),
    'pegasus_x': ('pegasus_x', {**BART, 'num_global_tokens': 3, 'block_size': 4}),
    'pegasus_x-b': ('pegasus_x', {**BART, 'num_global_tokens': 2, 'block_size': 6, 'stagger_local_blocks': False,
                                  'scale_embedding': False}),
    't5gemma': ('t5gemma', dict(**GEMMA_SIDES, encoder=GEMMA_SIDE, decoder=GEMMA_SIDE)),
    't5gemma-b': ('t5gemma', dict(
        **GEMMA_SIDES, encoder={**GEMMA_SIDE, 'hidden_size': 32, 'attn_logit_softcapping': 2.0, 'num_hidden_layers': 2},
        decoder={**GEMMA_SIDE, 'attention_bias': True, 'attn_logit_softcapping': None, 'hidden_activation': 'silu',
                 'final_logit_softcapping': 5.0, 'head_dim': 16}, tie_word_embeddings=False)),
}


def seq2seq_answers(model, vocab, seed):
    g = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, vocab, (2, 21), generator=g)
    mask = torch.ones_like(ids)
    ids[1, 13:], mask[1, 13:] = model.config.pad_token_id, 0
    begun = torch.randint(3, getattr(model.config, 'decoder_vocab_size', None) or vocab, (2, 9), generator=g)
    begun[:, 0] = model.config.decoder_start_token_id
    # Nothing but what is told here: families carry settings of their own.
    settings = dict(do_sample=False, num_beams=1, max_new_tokens=14, forced_eos_token_id=None, bad_words_ids=None)
    with torch.no_grad():
        out = {'input_ids': ids, 'attention_mask': mask, 'decoder_input_ids': begun,
               'encoded': model.get_encoder()(input_ids=ids, attention_mask=mask).last_hidden_state,
               'logits': model(ids, attention_mask=mask, decoder_input_ids=begun).logits,
               'ruled': model.generate(ids, attention_mask=mask, **{**settings, **model.rules})}
        wide = dict(num_beams=3, length_penalty=0.7, early_stopping=model.rules.get('early_stopping', False))
        out['beams'] = model.generate(ids, attention_mask=mask, **{**settings, **model.rules, **wide})
        model.generation_config.eos_token_id = None
        out['greedy'] = model.generate(ids, attention_mask=mask, **settings)
    return {k: v.numpy().astype(np.float32 if v.is_floating_point() else np.int32) for k, v in out.items()}


# Vision models: pictures to vectors and classes.
SMALL = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, image_size=20, patch_size=5, num_labels=3)
PLAIN = dict(SMALL, intermediate_size=40)
DINO = dict(SMALL, mlp_ratio=2)
SWIN = dict(image_size=32, patch_size=2, embed_dim=8, depths=[2, 2], num_heads=[2, 4], window_size=4, num_labels=3)
STAGES = dict(hidden_sizes=[8, 12, 16], depths=[1, 2, 1], num_labels=3)
EFFICIENT = dict(width_coefficient=0.5, depth_coefficient=1.0, in_channels=[32, 16, 24], out_channels=[16, 24, 40],
                 kernel_sizes=[3, 5, 3], strides=[1, 2, 2], num_block_repeats=[1, 2, 1], expand_ratios=[1, 3, 2],
                 hidden_dim=640, num_labels=3, image_size=32)
POOLED = dict(num_encoder_blocks=2, hidden_sizes=[8, 12], depths=[1, 2], patch_sizes=[7, 3], strides=[4, 2],
              padding=[2, 1], num_labels=3)
SEGMENTED = dict(num_encoder_blocks=2, hidden_sizes=[8, 16], depths=[1, 2], patch_sizes=[7, 3], strides=[4, 2],
                 num_attention_heads=[1, 2], sr_ratios=[2, 1], mlp_ratios=[2, 2], num_labels=3)
MOBILE = dict(hidden_sizes=[16, 20, 24], neck_hidden_sizes=[8, 8, 12, 12, 16, 16, 20], expand_ratio=2.0, num_labels=3)
MOBILE2 = dict(width_multiplier=0.2, base_attn_unit_dims=[80, 90, 100], n_attn_blocks=[1, 2, 1], num_labels=3)
LEVIT = dict(image_size=64, patch_size=16, hidden_sizes=[16, 24, 32], num_attention_heads=[2, 3, 4], depths=[1, 2, 1],
             key_dim=[8, 4, 4], num_labels=3)
BIT = dict(hidden_sizes=[16, 24, 32], depths=[1, 2, 1], embedding_size=8, num_groups=4, num_labels=3)
PVT = dict(num_encoder_blocks=2, hidden_sizes=[8, 16], depths=[1, 2], num_attention_heads=[1, 2], mlp_ratios=[2, 3],
           num_labels=3)
FOCAL = dict(image_size=32, patch_size=4, embed_dim=8, depths=[1, 2], focal_levels=[2, 3], focal_windows=[3, 5],
             mlp_ratio=2.0, num_labels=3)
CVT = dict(embed_dim=[8, 12, 16], num_heads=[1, 3, 2], depth=[1, 2, 3], mlp_ratio=[2.0, 1.5, 2.0], num_labels=3)
SWIFT = dict(embed_dims=[8, 12, 12], depths=[2, 1, 2], downsamples=[True, True, True], mlp_ratio=2, num_labels=3)
HIERA = dict(image_size=[32, 32], patch_size=[5, 5], patch_stride=[2, 2], patch_padding=[2, 2], embed_dim=8,
             depths=[1, 2, 2], num_heads=[1, 2, 4], num_query_pool=2, masked_unit_size=[4, 4], num_labels=3,
             masked_unit_attention=[True, True, False], mlp_ratio=2.0)
SEEING = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40, image_size=32,
              patch_size=8)
VISION = {
    AutoModel: {
        'hiera': ('hiera', HIERA),
        'levit': ('levit', LEVIT), 'bit': ('bit', BIT), 'focalnet': ('focalnet', FOCAL),
        'mobilevit': ('mobilevit', dict(MOBILE, output_stride=16)),
        'vit_mae': ('vit_mae', dict(PLAIN, mask_ratio=0.0, hidden_act='relu')),  # the oracle is to see all
        'vit_msn': ('vit_msn', PLAIN), 'deit': ('deit', PLAIN), 'dinov2': ('dinov2', DINO), 'beit': ('beit', PLAIN),
        'swin': ('swin', {**SWIN, 'image_size': 28, 'window_size': 5}),
        'swinv2': ('swinv2', {**SWIN, 'image_size': 28, 'window_size': 5}),
        'resnet': ('resnet', dict(STAGES, embedding_size=8)),
        'convnext': ('convnext', dict(STAGES, num_stages=3)),
        'dinov3_convnext': ('dinov3_convnext', dict(hidden_sizes=[8, 12, 16], depths=[1, 2, 1], hidden_act='relu')),
        'ijepa': ('ijepa', PLAIN),
        'videomae': ('videomae', dict(PLAIN, num_frames=5, qv_bias=False)),
        'clip_vision': ('clip_vision_model', dict(PLAIN, hidden_act='quick_gelu')),
        'siglip_vision': ('siglip_vision_model', PLAIN),
        'dinov3_vit': ('dinov3_vit', dict(PLAIN, image_size=20)),
        'dinov3_vit-b': ('dinov3_vit', dict(PLAIN, num_register_tokens=3, use_gated_mlp=True, mlp_bias=False,
                                            key_bias=True, value_bias=False, proj_bias=False, rope_theta=30.0,
                                            hidden_act='silu')),
        'dinov2_with_registers': ('dinov2_with_registers', dict(DINO, num_register_tokens=3)),
    },
    AutoModelForImageClassification: {
        'vit_msn-c': ('vit_msn', dict(PLAIN, qkv_bias=False)),
        'dinov2-c': ('dinov2', dict(DINO, use_swiglu_ffn=True)),
        'dinov2_with_registers-c': ('dinov2_with_registers', dict(DINO, num_register_tokens=3)),
        'beit-c': ('beit', dict(PLAIN, use_relative_position_bias=True)),
        'beit-d': ('beit', dict(PLAIN, use_shared_relative_position_bias=True, use_absolute_position_embeddings=True,
                                use_mean_pooling=False, layer_scale_init_value=0.0)),
        'data2vec-c': ('data2vec-vision', dict(PLAIN, use_relative_position_bias=True)),
        'swin-c': ('swin', {**SWIN, 'qkv_bias': False, 'use_absolute_embeddings': True, 'mlp_ratio': 2.0,
                            'depths': [1, 3]}),
        'swinv2-c': ('swinv2', {**SWIN, 'image_size': 20, 'qkv_bias': False, 'mlp_ratio': 2.0, 'depths': [1, 3],
                                'window_size': 6, 'pretrained_window_sizes': [4, 0]}),
        'resnet-c': ('resnet', dict(STAGES, embedding_size=8, layer_type='basic', hidden_act='silu')),
        'resnet-d': ('resnet', dict(STAGES, embedding_size=8, downsample_in_first_stage=True,
                                    downsample_in_bottleneck=True)),
        'mobilenet_v1-c': ('mobilenet_v1', dict(depth_multiplier=0.25, num_labels=3)),
        'mobilenet_v1-d': ('mobilenet_v1', dict(depth_multiplier=0.3, min_depth=10, tf_padding=False, hidden_act='relu',
                                                num_labels=3, layer_norm_eps=1e-2)),
        'mobilenet_v2-c': ('mobilenet_v2', dict(depth_multiplier=0.35, num_labels=3, finegrained_output=False)),
        'mobilenet_v2-d': ('mobilenet_v2', dict(
            depth_multiplier=0.4, depth_divisible_by=6, min_depth=5, expand_ratio=2.5, output_stride=8, num_labels=3,
            first_layer_is_expansion=False, finegrained_output=False, tf_padding=False, hidden_act='silu')),
        'efficientnet-c': ('efficientnet', dict(EFFICIENT, depthwise_padding=[1])),
        'efficientnet-d': ('efficientnet', dict(EFFICIENT, pooling_type='max', hidden_act='relu', batch_norm_eps=1e-2,
                                                squeeze_expansion_ratio=0.5, depth_coefficient=1.5)),
        'regnet-c': ('regnet', dict(STAGES, embedding_size=8, groups_width=4)),
        'regnet-d': ('regnet', dict(STAGES, embedding_size=8, groups_width=20, layer_type='x', hidden_act='silu',
                                    downsample_in_first_stage=False)),
        'poolformer-c': ('poolformer', POOLED),
        'poolformer-d': ('poolformer', dict(POOLED, use_layer_scale=False, pool_size=5, hidden_act='relu', mlp_ratio=1.5)),
        'segformer-c': ('segformer', SEGMENTED),
        'segformer-d': ('segformer', dict(SEGMENTED, sr_ratios=[4, 1], hidden_act='relu', mlp_ratios=[1, 3],
                                          reshape_last_stage=False)),
        'convnext-c': ('convnext', dict(STAGES, num_stages=3, layer_scale_init_value=0.0, hidden_act='relu')),
        'ijepa-c': ('ijepa', dict(PLAIN, qkv_bias=False, hidden_act='relu')),
        'convnextv2-c': ('convnextv2', dict(STAGES, num_stages=3)),
        'bit-c': ('bit', BIT),
        'bit-d': ('bit', dict(BIT, layer_type='bottleneck', global_padding='same', embedding_dynamic_padding=True,
                              output_stride=8, hidden_act='silu', num_groups=2)),
        'bit-e': ('bit', dict(BIT, layer_type='bottleneck', output_stride=8, width_factor=1)),
        'cvt-c': ('cvt', CVT),
        'cvt-d': ('cvt', dict(CVT, qkv_bias=[False, True, False],
                              kernel_qkv=[3, 5, 1], padding_q=[1, 2, 0], padding_kv=[0, 2, 0], stride_kv=[1, 2, 1])),
        'pvt-c': ('pvt', dict(PVT, image_size=32, patch_sizes=[4, 2], strides=[4, 2], sequence_reduction_ratios=[4, 1])),
        'pvt-d': ('pvt', dict(PVT, image_size=32, patch_sizes=[4, 2], strides=[4, 2], sequence_reduction_ratios=[2, 1],
                              qkv_bias=False, hidden_act='relu', layer_norm_eps=1e-2)),
        'pvt_v2-c': ('pvt_v2', dict(PVT, patch_sizes=[7, 3], strides=[4, 2], sr_ratios=[4, 1])),
        'pvt_v2-d': ('pvt_v2', dict(PVT, patch_sizes=[5, 3], strides=[2, 2], sr_ratios=[2, 2], linear_attention=True,
                                    qkv_bias=False, hidden_act='relu', layer_norm_eps=1e-2)),
        'focalnet-c': ('focalnet', FOCAL),
        'focalnet-d': ('focalnet', dict(FOCAL, image_size=30, use_conv_embed=True, use_post_layernorm=True,
                                        use_post_layernorm_in_modulation=True, normalize_modulator=True,
                                        use_layerscale=True, hidden_act='relu', layer_norm_eps=1e-2)),
        'swiftformer-c': ('swiftformer', SWIFT),
        'swiftformer-d': ('swiftformer', dict(SWIFT, downsamples=[True, False, False], use_layer_scale=False,
                                              hidden_act='relu', batch_norm_eps=1e-2, down_patch_size=5, down_pad=2)),
        'hiera-c': ('hiera', HIERA),
        'hiera-d': ('hiera', dict(HIERA, num_query_pool=1, embed_dim_multiplier=1.5, num_heads=[2, 3, 3],
                                  masked_unit_attention=[False, True, True], masked_unit_size=[8, 8], hidden_act='relu',
                                  layer_norm_eps=1e-2)),
        'clip-c': ('clip', dict(vision_config=SEEING, num_labels=3)),
        'metaclip_2-c': ('metaclip_2', dict(vision_config=dict(SEEING, hidden_act='gelu'), num_labels=3)),
        'siglip-c': ('siglip', dict(vision_config=SEEING, num_labels=3)),
        'mobilevit-c': ('mobilevit', MOBILE),
        'mobilevit-d': ('mobilevit', dict(MOBILE, qkv_bias=False, mlp_ratio=1.5, hidden_act='relu', conv_kernel_size=1,
                                          output_stride=8, patch_size=3, layer_norm_eps=1e-2)),
        'mobilevitv2-c': ('mobilevitv2', MOBILE2),
        'mobilevitv2-d': ('mobilevitv2', dict(MOBILE2, output_stride=16, ffn_multiplier=3, hidden_act='relu',
                                              patch_size=3, conv_kernel_size=5, layer_norm_eps=1e-2)),
    },
    AutoModelForVideoClassification: {
        'videomae-c': ('videomae', dict(PLAIN, num_frames=4, hidden_act='relu')),
        'videomae-d': ('videomae', dict(PLAIN, num_frames=6, tubelet_size=3, use_mean_pooling=False)),
    },
    DeiTForImageClassification: {'deit-c': ('deit', {**PLAIN, 'qkv_bias': False, 'hidden_act': 'relu'})},
    DeiTForImageClassificationWithTeacher: {'deit-d': ('deit', PLAIN)},
    LevitForImageClassification: {'levit-c': ('levit', LEVIT)},
    LevitForImageClassificationWithTeacher: {
        'levit-d': ('levit', dict(LEVIT, attention_ratio=[1, 3, 2], mlp_ratio=[2, 0, 1], image_size=80)),
    },
}


def vision_answers(model, _, seed):
    g = torch.Generator().manual_seed(seed)
    side = getattr(model.config, 'image_size', 32)
    side = min(side if isinstance(side, int) else 32, 32)
    # Where less would leave no patch, or its place is learnt.
    side = {'mobilevitv2': 80, 'levit': getattr(model.config, 'image_size', 0)}.get(model.config.model_type, side)
    # DINOv2 takes pictures of other sizes, too.
    tall = 10 if re.search('dinov[23]',  model.config.model_type) and not hasattr(model, 'classifier') else 0
    pixels = torch.randn(2, 3, side + tall, side, generator=g)
    if model.config.model_type == 'videomae':
        pixels = torch.randn(2, model.config.num_frames, 3, side, side, generator=g)
    # Patches in their own order.
    noise = {'noise': torch.arange(16.0).expand(2, 16)} if model.config.model_type == 'vit_mae' else {}
    with torch.no_grad():
        out = model(pixels, **noise)
    found = {'pixels': pixels}
    if 'logits' in out:
        found['logits'] = out.logits
    else:
        found['hidden'] = out.last_hidden_state
        vector = getattr(out, 'pooler_output', None)
        if model.config.model_type in ('ijepa', 'videomae'):  # whose classes are of the mean
            vector = out.last_hidden_state.mean(1)
        found['logits'] = (out.last_hidden_state[:, 0] if vector is None else vector).flatten(1)
    return {k: v.numpy().astype(np.float32) for k, v in found.items()}


# Models of sounds: samples to letters and classes.
HEARING = dict(vocab_size=20, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40,
               conv_dim=(16, 16, 24), conv_kernel=(10, 3, 3), conv_stride=(5, 2, 2), num_feat_extract_layers=3,
               num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=4, mask_time_prob=0.0, mask_feature_prob=0.0,
               classifier_proj_size=16, num_labels=3)
STABLE = dict(HEARING, feat_extract_norm='layer', do_stable_layer_norm=True, conv_bias=True)
CONFORMED = dict(HEARING, conv_depthwise_kernel_size=5)
SOUND = {
    AutoModel: {'hubert': ('hubert', dict(HEARING, feat_proj_layer_norm=False)),
                'conformer-b': ('wav2vec2-conformer',
                                dict(CONFORMED, position_embeddings_type='rotary', hidden_act='silu',
                                     num_hidden_layers=1))},
    AutoModelForCTC: {
        'wav2vec2': ('wav2vec2', dict(STABLE, adapter_attn_dim=8)),
        'wav2vec2-b': ('wav2vec2', dict(HEARING, num_conv_pos_embeddings=7, hidden_act='relu')),
        'hubert-b': ('hubert', STABLE),
        'unispeech': ('unispeech', HEARING), 'unispeech-sat': ('unispeech-sat', STABLE),
        'wavlm': ('wavlm', dict(HEARING, num_buckets=12, max_bucket_distance=20)),
        'data2vec-audio': ('data2vec-audio', dict(HEARING, num_conv_pos_embeddings=2, conv_pos_kernel_size=6)),
        'sew': ('sew', dict(HEARING, squeeze_factor=2)),
        'conformer': ('wav2vec2-conformer', CONFORMED),
    },
    AutoModelForAudioClassification: {
        'wav2vec2-c': ('wav2vec2', HEARING),
        'sew-b': ('sew', dict(HEARING, squeeze_factor=3, conv_dim=(16, 16, 32), num_conv_pos_embeddings=7)),
        'hubert-c': ('hubert', dict(STABLE, use_weighted_layer_sum=True)),
        'wavlm-b': ('wavlm', dict(STABLE, use_weighted_layer_sum=True, num_hidden_layers=3)),
    },
}


PLAIN_AST = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40, patch_size=4,
                 frequency_stride=3, time_stride=2, max_length=20, num_mel_bins=16, num_labels=3)
SPECTROGRAMS = {
    AutoModel: {'ast': ('audio-spectrogram-transformer', dict(PLAIN_AST, hidden_act='relu'))},
    AutoModelForAudioClassification: {'ast-b': ('audio-spectrogram-transformer', dict(PLAIN_AST, qkv_bias=False))},
}


BANDED = dict(vocab_size=20, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40,
              num_labels=3, feature_projection_input_dim=16, conv_depthwise_kernel_size=5, classifier_proj_size=12,
              mask_time_prob=0.0)
PARAKEET = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40, conv_kernel_size=5,
                subsampling_conv_channels=6, num_mel_bins=16, subsampling_factor=4)
WRITTEN = dict(vocab_size=20, pad_token_id=18, blank_token_id=19, decoder_hidden_size=12, encoder_config=PARAKEET)
SHORTLY = dict(WRITTEN, vocab_size=6, pad_token_id=2, blank_token_id=3, hidden_act='tanh')
BANDS = {
    AutoModelForCTC: {
        'parakeet': ('parakeet_ctc', dict(vocab_size=20, pad_token_id=19, encoder_config=PARAKEET)),
        'parakeet-b': ('parakeet_ctc', dict(vocab_size=20, pad_token_id=19, encoder_config=dict(
            PARAKEET, attention_bias=False, convolution_bias=False, scale_input=False, hidden_act='relu',
            subsampling_factor=2, conv_kernel_size=7, subsampling_conv_kernel_size=5))),
        'bands': ('wav2vec2-bert', dict(BANDED, left_max_position_embeddings=6))},
    # Of names whose numbers let pieces, nothing and later moments follow each other.
    ParakeetForTDT: {'transducer': ('parakeet_tdt', WRITTEN),
                     'transducer-h': ('parakeet_tdt', dict(SHORTLY, durations=[0, 1, 2], num_decoder_layers=1))},
    ParakeetForRNNT: {'transducer-j': ('parakeet_rnnt', dict(SHORTLY, max_symbols_per_step=4))},
    AutoModelForAudioClassification: {
        'bands-b': ('wav2vec2-bert', dict(BANDED, position_embeddings_type='relative', layer_norm_eps=1e-2,
                                          use_weighted_layer_sum=True))},
}


def transducer_answers(model, seed):
    g = torch.Generator().manual_seed(seed)
    n = model.config.vocab_size
    frames, ids = torch.randn(2, 40, 16, generator=g), torch.randint(0, n, (2, 3), generator=g)
    mask = torch.ones(2, 40, dtype=torch.long)
    mask[1, 30:] = 0
    model.generation_config.decoder_start_token_id = model.config.blank_token_id
    if hasattr(model.config, 'durations'):  # which are no pieces
        model.generation_config.suppress_tokens = list(range(n, n + len(model.config.durations)))
    with torch.no_grad():
        found = {'frames': frames, 'mask': mask, 'decoder_input_ids': ids,
                 'logits': model(frames, attention_mask=mask, decoder_input_ids=ids).logits}
        for i, name in enumerate(('first', 'second')):
            made = model.generate(frames[i:i + 1], attention_mask=mask[i:i + 1]).sequences[0]
            found[name] = made[made != model.config.blank_token_id]
    return {k: v.numpy().astype(np.float32 if v.is_floating_point() else np.int32) for k, v in found.items()}


def band_answers(model, _, seed):
    if hasattr(model, 'joint'):
        return transducer_answers(model, seed)
    frames = torch.randn(2, 20, 16, generator=torch.Generator().manual_seed(seed))
    mask = torch.ones(2, 20, dtype=torch.long)
    mask[1, 14:] = 0
    with torch.no_grad():
        found = {'frames': frames, 'mask': mask, 'logits': model(frames, attention_mask=mask).logits}
    return {k: v.numpy().astype(np.float32 if v.is_floating_point() else np.int32) for k, v in found.items()}


HEARER = dict(vocab_size=60, d_model=32, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=40,
              decoder_layers=1, num_mel_bins=16, max_source_positions=50, classifier_proj_size=12, num_labels=3,
              pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1)
MELS = {AutoModelForAudioClassification: {
    'whisper-c': ('whisper', HEARER),
    'whisper-d': ('whisper', dict(HEARER, use_weighted_layer_sum=True, activation_function='relu',
                                  encoder_attention_heads=2)),
}}


def spectrogram_answers(model, _, seed):
    shape = (2, 16, 100) if model.config.model_type == 'whisper' else (2, 20, 16)
    frames = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        out = model(frames)
    found = {'frames': frames, 'logits': out.logits if 'logits' in out else out.pooler_output}
    return {k: v.numpy().astype(np.float32) for k, v in found.items()}


def sound_answers(model, _, seed):
    g = torch.Generator().manual_seed(seed)
    samples = torch.randn(2, 800, generator=g)
    mask = torch.ones(2, 800, dtype=torch.long)
    samples[1, 600:], mask[1, 600:] = 0, 0
    with torch.no_grad():
        plain, masked = model(samples[:1]), model(samples, attention_mask=mask)
    of = lambda out: out.logits if 'logits' in out else out.last_hidden_state
    found = {'samples': samples, 'mask': mask, 'plain': of(plain), 'masked': of(masked)}
    return {k: v.numpy().astype(np.float32 if v.is_floating_point() else np.int32) for k, v in found.items()}


# Models that hear and write text.
SPOKEN = dict(vocab_size=60, hidden_size=32, intermediate_size=40, encoder_num_hidden_layers=2, max_position_embeddings=64,
              decoder_num_hidden_layers=2, encoder_num_attention_heads=4, decoder_num_attention_heads=4, pad_token_id=0)
SPEECH = {AutoModelForSpeechSeq2Seq: {
    'moonshine': ('moonshine', SPOKEN),
    'moonshine-b': ('moonshine', dict(SPOKEN, attention_bias=True, encoder_num_attention_heads=2,
                                      decoder_num_attention_heads=2, partial_rotary_factor=0.5, encoder_hidden_act='relu',
                                      decoder_hidden_act='gelu', tie_word_embeddings=False, decoder_num_hidden_layers=3,
                                      pad_head_dim_to_multiple_of=12)),
}}


def speech_answers(model, vocab, seed):
    g = torch.Generator().manual_seed(seed)
    samples = torch.randn(2, 4000, generator=g) / 4
    mask = torch.ones(2, 4000, dtype=torch.long)
    samples[1, 2600:], mask[1, 2600:] = 0, 0
    begun = torch.cat([torch.ones(2, 1, dtype=torch.long), torch.randint(3, 60, (2, 7), generator=g)], 1)
    model.generation_config.eos_token_id = None
    with torch.no_grad():
        out = {'input_features': samples, 'attention_mask': mask, 'decoder_input_ids': begun,
               'encoded': model.get_encoder()(samples, attention_mask=mask).last_hidden_state,
               'logits': model(samples, attention_mask=mask, decoder_input_ids=begun).logits,
               'greedy': model.generate(samples, attention_mask=mask, do_sample=False, max_new_tokens=14)}
    return {k: v.numpy().astype(np.float32 if v.is_floating_point() else np.int32) for k, v in out.items()}


# Models that read pictures and write text.
TOWER = dict(hidden_size=24, intermediate_size=36, num_hidden_layers=3, num_attention_heads=2, image_size=16, patch_size=4)
CLIP_TOWER = dict(TOWER, model_type='clip_vision_model', projection_dim=16)
SIGLIP_TOWER = dict(TOWER, model_type='siglip_vision_model', vision_use_head=False)
WRITER = dict(vocab_size=80, hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=2, head_dim=8, max_position_embeddings=128, pad_token_id=0, bos_token_id=1,
              eos_token_id=2)
PALI = dict(image_token_index=70, projection_dim=32, hidden_size=32, vocab_size=80)
PICTURES = {AutoModelForImageTextToText: {
    'paligemma': ('paligemma', dict(PALI, text_config=dict(WRITER, model_type='gemma'),
                                    vision_config=dict(SIGLIP_TOWER, projection_dim=32))),
    'paligemma-b': ('paligemma', dict(
        PALI, text_config=dict(WRITER, model_type='gemma2', sliding_window=4, query_pre_attn_scalar=12,
                               attn_logit_softcapping=None), vision_config=dict(SIGLIP_TOWER, projection_dim=32))),
    'llava': ('llava', dict(text_config=dict(WRITER, model_type='llama'), vision_config=CLIP_TOWER,
                            image_token_index=70, image_seq_length=16)),
    'llava-b': ('llava', dict(text_config=dict(WRITER, model_type='qwen2'), vision_config=SIGLIP_TOWER,
                              image_token_index=70, image_seq_length=16, vision_feature_layer=[-2, 1],
                              vision_feature_select_strategy='full', multimodal_projector_bias=False,
                              projector_hidden_act='relu')),
    'gemma3': ('gemma3', dict(
        text_config=dict(WRITER, model_type='gemma3_text', query_pre_attn_scalar=12, sliding_window=3,
                         num_hidden_layers=6), vision_config=SIGLIP_TOWER, mm_tokens_per_image=4, image_token_id=70,
        boi_token_id=71, eoi_token_id=72)),
}}


QWEN_TEXT = {**WRITER, 'rope_parameters': {'rope_type': 'default', 'rope_theta': 1000.0, 'mrope_section': [2, 1, 1]}}
QWEN_IDS = dict(image_token_id=70, video_token_id=71, vision_start_token_id=72, vision_end_token_id=73)
QWEN_TOWER = dict(depth=3, num_heads=2, patch_size=2, temporal_patch_size=2, spatial_merge_size=2)
PICTURES[AutoModelForImageTextToText] |= {
    'qwen2_vl': ('qwen2_vl', dict(QWEN_IDS, text_config=QWEN_TEXT, vision_config=dict(
        QWEN_TOWER, embed_dim=24, mlp_ratio=2, hidden_size=32))),
    'qwen2_5_vl': ('qwen2_5_vl', dict(QWEN_IDS, text_config=QWEN_TEXT, tie_word_embeddings=True, vision_config=dict(
        QWEN_TOWER, hidden_size=24, intermediate_size=36, out_hidden_size=32, window_size=8,
        fullatt_block_indexes=[1]))),
    'qwen3_vl': ('qwen3_vl', dict(QWEN_IDS, text_config={**QWEN_TEXT, 'num_hidden_layers': 3, 'head_dim': 16,
        'rope_parameters': {'rope_type': 'default', 'rope_theta': 1000.0, 'mrope_section': [4, 2, 2]}},
        vision_config=dict(QWEN_TOWER, hidden_size=24, intermediate_size=36, out_hidden_size=32,
                           num_position_embeddings=9, deepstack_visual_indexes=[0, 1]))),
    'qwen3_vl_moe': ('qwen3_vl_moe', dict(QWEN_IDS, text_config={
        **QWEN_TEXT, 'num_experts': 4, 'num_experts_per_tok': 2, 'moe_intermediate_size': 24, 'head_dim': 16,
        'rope_parameters': {'rope_type': 'default', 'rope_theta': 1000.0, 'mrope_section': [4, 2, 2]}},
        vision_config=dict(QWEN_TOWER, hidden_size=24, intermediate_size=36, out_hidden_size=32,
                           num_position_embeddings=9, deepstack_visual_indexes=[1]))),
}
TILES = dict(image_grid_pinpoints=[[8, 16], [16, 8], [16, 16], [24, 8]], image_token_index=70)
SMALL_TILE = dict(image_size=8)
PICTURES[AutoModelForImageTextToText] |= {
    'llava_next': ('llava_next', dict(TILES, text_config=dict(WRITER, model_type='mistral'), image_seq_length=16,
                                      vision_config={**CLIP_TOWER, **SMALL_TILE})),
    'llava_onevision': ('llava_onevision', dict(TILES, text_config=dict(WRITER, model_type='qwen2'),
                                                vision_aspect_ratio='anyres_max_2',
                                                vision_config={**SIGLIP_TOWER, **SMALL_TILE})),
    'idefics3': ('idefics3', dict(text_config=dict(WRITER, model_type='llama'), image_token_id=70, scale_factor=3,
                                  pad_token_id=0, vision_config={**TOWER, 'image_size': 24})),
    'smolvlm': ('smolvlm', dict(text_config=dict(WRITER, model_type='llama', tie_word_embeddings=True),
                                image_token_id=70, scale_factor=2, tie_word_embeddings=True, pad_token_id=0,
                                vision_config=TOWER)),
}

PIXTRAL = {**TOWER, 'model_type': 'pixtral', 'hidden_act': 'silu',
           'rope_parameters': {'rope_type': 'axial', 'rope_theta': 100.0}}
PICTURES[AutoModelForImageTextToText] |= {
    'llava-c': ('llava', dict(text_config=dict(WRITER, model_type='mistral'), vision_config=PIXTRAL,
                              image_token_index=70, vision_feature_layer=-1, vision_feature_select_strategy='full')),
    'llava-d': ('llava', dict(text_config=dict(WRITER, model_type='llama'), vision_config={**PIXTRAL, 'hidden_act': 'gelu'},
                              image_token_index=70, vision_feature_layer=[-2, 0], vision_feature_select_strategy='full')),
    'mistral3': ('mistral3', dict(text_config=dict(WRITER, model_type='mistral', rms_norm_eps=1e-3),
                                  vision_config=PIXTRAL, image_token_index=70, tie_word_embeddings=False)),
    'mistral3-b': ('mistral3', dict(text_config=dict(WRITER, model_type='ministral3', tie_word_embeddings=True),
                                    vision_config=PIXTRAL, image_token_index=70, tie_word_embeddings=True,
                                    spatial_merge_size=1, vision_feature_layer=[-2], multimodal_projector_bias=True,
                                    projector_hidden_act='relu')),
}
INTERN = dict(TOWER, model_type='internvl_vision', attention_bias=True)
PICTURES[AutoModelForImageTextToText] |= {
    'internvl': ('internvl', dict(text_config=dict(WRITER, model_type='qwen2'), vision_config=INTERN, image_token_id=70,
                                  image_seq_length=4, tie_word_embeddings=False)),
    'internvl-b': ('internvl', dict(text_config=dict(WRITER, model_type='llama'), image_token_id=70, image_seq_length=4,
                                    vision_config=dict(INTERN, attention_bias=False, use_qk_norm=True, layer_norm_eps=1e-3,
                                                       norm_type='rms_norm', use_mean_pooling=False,
                                                       hidden_act='relu'), tie_word_embeddings=False)),
    'internvl-c': ('internvl', dict(text_config=dict(WRITER, model_type='qwen3', tie_word_embeddings=True),
                                    image_token_id=70, image_seq_length=1, downsample_ratio=0.25, vision_feature_layer=-2,
                                    vision_config=dict(INTERN, use_mask_token=True, use_mean_pooling=False,
                                                       use_absolute_position_embeddings=False),
                                    projector_hidden_act='relu', tie_word_embeddings=True)),
}
MLLAMA = dict(hidden_size=24, intermediate_size=36, num_hidden_layers=3, num_global_layers=2, attention_heads=2,
              image_size=16, patch_size=4, max_num_tiles=4, intermediate_layers_indices=[2, 0], vision_output_dim=72)
PICTURES[AutoModelForImageTextToText] |= {
    'mllama': ('mllama', dict(text_config={**WRITER, 'num_hidden_layers': 4, 'cross_attention_layers': [1, 3]},
                              vision_config=MLLAMA, image_token_index=80)),
    'mllama-b': ('mllama', dict(
        text_config={**WRITER, 'num_hidden_layers': 3, 'cross_attention_layers': [2], 'rms_norm_eps': 1e-3},
        vision_config=dict(MLLAMA, max_num_tiles=2, supported_aspect_ratios=[[1, 1], [1, 2], [2, 1]], norm_eps=1e-3,
                           hidden_act='relu', intermediate_layers_indices=[1], vision_output_dim=48),
        image_token_index=80)),
}


READER = dict(vocab_size=80, hidden_size=32, encoder_hidden_size=24, intermediate_size=40, num_hidden_layers=2,
              num_attention_heads=4, max_position_embeddings=40, bos_token_id=61, pad_token_id=0, eos_token_id=2,
              sep_token_id=62)
BLIP = dict(text_config=READER, vision_config=TOWER, projection_dim=16, image_text_hidden_size=12)
BLIPS = {BlipForConditionalGeneration: {'blip': ('blip', BLIP)}, BlipForImageTextRetrieval: {'blip-b': ('blip', BLIP)}}


def blip_answers(model, _, seed):
    g = torch.Generator().manual_seed(seed)
    pixels, ids = torch.randn(2, 3, 16, 16, generator=g), torch.randint(4, 60, (2, 6), generator=g)
    mask = torch.ones_like(ids)
    mask[1, 4:] = 0
    found = {'ids': ids, 'pixels': pixels}
    with torch.no_grad():
        if hasattr(model, 'itm_head'):
            given = dict(input_ids=ids, pixel_values=pixels, attention_mask=mask)
            found |= {'mask': mask, 'logits': model(**given).itm_score,
                      'cosines': model(**given, use_itm_head=False).itm_score}
        else:
            found['logits'] = model(pixel_values=pixels, input_ids=ids).logits
            found['greedy'] = model.text_decoder.generate(
                input_ids=ids, encoder_hidden_states=model.vision_model(pixels)[0], max_new_tokens=8, do_sample=False,
                eos_token_id=None, pad_token_id=0)[:, 6:]
    return {k: v.numpy().astype(np.float32 if v.is_floating_point() else np.int32) for k, v in found.items()}


def picture_answers(model, _, seed):
    g = torch.Generator().manual_seed(seed)
    tokens = 4 if model.config.model_type == 'gemma3' else 16
    words = lambda n: torch.randint(4, 60, (2, n), generator=g)
    ids = torch.cat([words(2), torch.full((2, tokens), 70), words(5)], 1)
    pixels = torch.randn(2, 3, 16, 16, generator=g)
    if model.config.model_type.startswith('qwen'):
        return placed_answers(model, words, g)
    if model.config.model_type.startswith('llava_'):
        return tiled_answers(model, words, g)
    if model.config.model_type == 'mllama':
        return watched_answers(model, words, g)
    if model.config.model_type == 'internvl':
        return side_by_side_answers(model, words, g)
    if model.config.model_type in ('idefics3', 'smolvlm'):
        return shuffled_answers(model, words, g)
    if model.config.vision_config.model_type == 'pixtral':
        return sized_answers(model, words, g)
    given = dict(input_ids=ids, pixel_values=pixels, attention_mask=torch.ones_like(ids))
    if model.config.model_type != 'llava':  # what sees itself both ways: a prompt, or pictures
        given['token_type_ids'] = (ids == 70).long() if model.config.model_type == 'gemma3' else torch.zeros_like(ids)
    found = {'ids': ids, 'pixels': pixels, **written(model, given)}
    return {k: v.numpy().astype(np.float32 if v.is_floating_point() else np.int32) for k, v in found.items()}


def placed_answers(model, words, g):
    """Qwen's pictures are of any size: rows of patches, and how many there are."""
    places = torch.tensor([[1, 6, 10], [1, 2, 2], [1, 10, 6], [1, 2, 2]])
    picture = lambda n: [torch.full((2, n), 70)]
    ids = torch.cat([words(2), *picture(15), words(3), *picture(1), words(4)], 1)
    pixels = torch.randint(-8, 9, (int(places.prod(1).sum()), 24), generator=g) / 4
    given = dict(input_ids=ids, pixel_values=pixels, image_grid_thw=places, attention_mask=torch.ones_like(ids),
                 mm_token_type_ids=(ids == 70).int())
    found = {'ids': ids, 'pixels': pixels, 'places': places, **written(model, given)}
    return {k: v.numpy().astype(np.float32 if v.is_floating_point() else np.int32) for k, v in found.items()}


def tiled_answers(model, words, g):
    """Pictures of several sizes, each with as many tiles as its size asks for."""
    sizes = torch.tensor([[30, 19], [14, 40], [9, 30], [22, 21]])
    tiles = [5, 3, 3, 5]  # of 16 x 16, 8 x 16, 8 x 16 and 16 x 16 pixels
    pixels = torch.randint(-8, 9, (4, 5, 3, 8, 8), generator=g) / 4
    more = dict(batch_num_images=torch.tensor([1] * 4)) if 'onevision' in model.config.model_type else {}
    with torch.no_grad():
        seen = [len(x) for x in model.get_image_features(pixels, sizes, **more).pooler_output]
    rows = []
    for first, second in (seen[:2], seen[2:]):
        row = [words(2)[:1], torch.full((1, first), 70), words(3)[:1], torch.full((1, second), 70)]
        rows.append(torch.cat(row, 1))
    longest = max(r.shape[1] for r in rows) + 3
    ids = torch.cat([torch.cat([r, words(longest - r.shape[1])[:1]], 1) for r in rows])
    given = dict(input_ids=ids, pixel_values=pixels, image_sizes=sizes, attention_mask=torch.ones_like(ids), **more)
    places = torch.cat([sizes, torch.tensor(tiles)[:, None]], 1)
    kept = torch.cat([p[:n] for p, n in zip(pixels, tiles)])
    found = {'ids': ids, 'pixels': kept, 'places': places, **written(model, given)}
    return {k: v.numpy().astype(np.float32 if v.is_floating_point() else np.int32) for k, v in found.items()}


def patches_of(pixels, sizes, side):
    """Pictures without their padding: rows of patches one after the other."""
    cut = [p[:, :h, :w].unfold(1, side, side).unfold(2, side, side) for p, (h, w) in zip(pixels, sizes.tolist())]
    return torch.cat([c.permute(1, 2, 0, 3, 4).reshape(-1, 3 * side * side) for c in cut])


def sized_answers(model, words, g):
    """Pixtral's pictures are of any size: each is padded to the largest, and its size said."""
    sizes = torch.tensor([[8, 16], [16, 8], [8, 16], [16, 8]])
    merge = getattr(model.config, 'spatial_merge_size', 1)
    picture = [torch.full((2, 8 // merge ** 2), 70)]
    ids = torch.cat([words(2), *picture, words(3), *picture, words(4)], 1)
    pixels = torch.randint(-8, 9, (4, 3, 16, 16), generator=g) / 4
    given = dict(input_ids=ids, pixel_values=pixels, image_sizes=sizes, attention_mask=torch.ones_like(ids))
    found = {'ids': ids, 'pixels': patches_of(pixels, sizes, 4), 'places': sizes // 4, **written(model, given)}
    return {k: v.numpy().astype(np.float32 if v.is_floating_point() else np.int32) for k, v in found.items()}


def watched_answers(model, words, g):
    """Llama 3.2's pictures are looked at by layers of their own: two a row, of several tiles."""
    from transformers.models.mllama import processing_mllama as p
    most = model.config.vision_config.max_num_tiles
    places = torch.tensor([[2, 2], [1, 1], [1, 1], [3, 2] if most == 2 else [6, 4]])  # a shape's number, its tiles
    here = torch.full((2, 1), 80)
    ids = torch.cat([words(2), here, words(3), here, words(4)], 1)
    if most == 4:
        ids[1, 2:7] = torch.tensor([20, 21, 80, 80, 22])  # pictures side by side
    pixels = torch.randint(-8, 9, (4, most, 3, 16, 16), generator=g) / 4
    for picture, (_, tiles) in zip(pixels, places.tolist()):
        picture[tiles:] = 0
    mask = [[1] * n + [0] * (most - n) for n in places[:, 1].tolist()]
    dense = p.convert_sparse_cross_attention_mask_to_dense(
        [p.get_cross_attention_token_mask(row, 80) for row in ids.tolist()], places[:, 1].reshape(2, 2).tolist(), most,
        ids.shape[1])
    given = dict(input_ids=ids, pixel_values=pixels.reshape(2, 2, most, 3, 16, 16), attention_mask=torch.ones_like(ids),
                 aspect_ratio_ids=places[:, 0].reshape(2, 2), aspect_ratio_mask=torch.tensor(mask).reshape(2, 2, most),
                 cross_attention_mask=torch.tensor(dense))
    found = {'ids': ids, 'pixels': pixels.flatten(0, 1), 'places': places, **written(model, given)}
    return {k: v.numpy().astype(np.float32 if v.is_floating_point() else np.int32) for k, v in found.items()}


def side_by_side_answers(model, words, g):
    """InternVL's tiles stand one after the other: two of a picture, then a picture of one."""
    tokens = model.config.image_seq_length
    picture = lambda n: torch.full((2, n * tokens), 70)
    ids = torch.cat([words(2), picture(2), words(3), picture(1), words(4)], 1)
    pixels = torch.randint(-8, 9, (6, 3, 16, 16), generator=g) / 4
    given = dict(input_ids=ids, pixel_values=pixels, attention_mask=torch.ones_like(ids))
    found = {'ids': ids, 'pixels': pixels, **written(model, given)}
    return {k: v.numpy().astype(np.float32 if v.is_floating_point() else np.int32) for k, v in found.items()}


def shuffled_answers(model, words, g):
    """Two tiles a row, of the size that was learnt and (Idefics 3) of a smaller one."""
    tokens, side = (4, 24) if model.config.model_type == 'idefics3' else (4, 16)
    ids = torch.cat([words(2), torch.full((2, tokens), 70), words(3), torch.full((2, tokens), 70), words(4)], 1)
    pixels = torch.randint(-8, 9, (2, 2, 3, side, side), generator=g) / 4
    given = dict(input_ids=ids, pixel_values=pixels, attention_mask=torch.ones_like(ids))
    found = {'ids': ids, 'pixels': pixels.flatten(0, 1), **written(model, given)}
    with torch.no_grad():
        small = torch.randint(-8, 9, (1, 1, 3, 12, 12), generator=g) / 4
        if model.config.model_type == 'idefics3':
            found |= {'small': small[0], 'seen': model.model.get_image_features(small).pooler_output[0]}
    return {k: v.numpy().astype(np.float32 if v.is_floating_point() else np.int32) for k, v in found.items()}


def written(model, given):
    model.generation_config.eos_token_id = None
    with torch.no_grad():
        logits = model(**given, use_cache=False).logits
        greedy = model.generate(**given, max_new_tokens=8, do_sample=False)[:, given['input_ids'].shape[1]:]
    return {'logits': logits, 'greedy': greedy}


# Chats about pictures: a folder's processor, tokenizer and template, and what transformers makes of a question.
TEMPLATE = ("{{ bos_token }}{% for m in messages %}{{ m['role'] }} :{% for p in m['content'] %}{% if p['type'] == 'image'"
            " %}HERE{% else %} {{ p['text'] }}{% endif %}{% endfor %}\n{% endfor %}{% if add_generation_prompt %}"
            "assistant :{% endif %}")
# Names of tokens that mean something to processors, by number; every other token is a word.
NAMED = {0: '<pad>', 1: '<s>', 2: '</s>', 3: '<unk>', 4: 'user', 5: 'assistant', 6: ':', 7: '\n', 70: '<image>',
         71: '<fake_token_around_image>', 72: '<global-img>', 73: '<row_1_col_1>', 74: '<row_1_col_2>',
         75: '<row_2_col_1>', 76: '<row_2_col_2>'}
MLLAMA_NAMES = {70: 'w70', 80: '<|image|>'}
INTERN_NAMES = {70: '<IMG_CONTEXT>', 71: '<img>', 72: '</img>', 73: '<video>'}
PIXTRAL_NAMES = {70: '[IMG]', 71: '[IMG_BREAK]', 72: '[IMG_END]'}
QWEN_NAMES = {70: '<|image_pad|>', 71: '<|video_pad|>', 72: '<|vision_start|>', 73: '<|vision_end|>'}
QWEN_PIXELS = dict(patch_size=2, temporal_patch_size=2, merge_size=2, min_pixels=40, max_pixels=400)
SHUFFLED = dict(size=dict(longest_edge=30), max_image_size=dict(longest_edge=16))
NEXT = dict(size=dict(shortest_edge=8), crop_size=dict(height=8, width=8),
            image_grid_pinpoints=TILES['image_grid_pinpoints'])
CHATS = {  # the image processor and its fields, the processor and its, names of tokens, what a template writes
    'qwen2_vl': ('Qwen2VL', QWEN_PIXELS, 'Qwen2VL', {}, QWEN_NAMES, '<|vision_start|><|image_pad|><|vision_end|>'),
    'qwen2_5_vl': ('Qwen2VL', dict(QWEN_PIXELS, size=dict(shortest_edge=100, longest_edge=200), min_pixels=None,
                                   max_pixels=None), 'Qwen2_5_VL', {}, QWEN_NAMES,
                   '<|vision_start|><|image_pad|><|vision_end|>'),
    'idefics3': ('Idefics3', dict(size=dict(longest_edge=40), max_image_size=dict(longest_edge=24)), 'Idefics3',
                 dict(image_seq_len=4), {}, '<image>'),
    'smolvlm': ('SmolVLM', SHUFFLED, 'Idefics3', dict(image_seq_len=4), {}, '<image>'),
    'llava': ('CLIP', dict(size=dict(shortest_edge=16), crop_size=dict(height=16, width=16)), 'Llava',
              dict(patch_size=4, num_additional_image_tokens=1, vision_feature_select_strategy='default'), {}, '<image>'),
    'llava_next': ('LlavaNext', NEXT, 'LlavaNext',
                   dict(patch_size=4, num_additional_image_tokens=1, vision_feature_select_strategy='default'), {},
                   '<image>'),
    'llava_onevision': ('LlavaOnevision', dict(size=dict(height=8, width=8), image_mean=[0.5, 0.4, 0.3],
                                               image_grid_pinpoints=TILES['image_grid_pinpoints']), 'LlavaOnevision',
                        dict(num_image_tokens=4, vision_feature_select_strategy='full',
                             vision_aspect_ratio='anyres_max_2'), {77: '<video>'}, '<image>'),
    'llava-c': ('Pixtral', dict(size=dict(longest_edge=30), patch_size=dict(height=4, width=4)), 'Pixtral',
                dict(patch_size=4), PIXTRAL_NAMES, '[IMG]'),
    'mistral3': ('Pixtral', dict(size=dict(longest_edge=40), patch_size=dict(height=4, width=4), resample=2), 'Pixtral',
                 dict(patch_size=4, spatial_merge_size=2), PIXTRAL_NAMES, '[IMG]'),
    'internvl': ('GotOcr2', dict(size=dict(height=16, width=16), crop_to_patches=False, min_patches=1, max_patches=4),
                 'InternVL', dict(image_seq_length=4), INTERN_NAMES, '<IMG_CONTEXT>\n'),
    'internvl-b': ('GotOcr2', dict(size=dict(height=16, width=16), crop_to_patches=True, min_patches=2, max_patches=9),
                   'InternVL', dict(image_seq_length=4), INTERN_NAMES, '<IMG_CONTEXT>\n'),
    'mllama': ('Mllama', dict(size=dict(height=16, width=16), max_image_tiles=4), 'Mllama', {}, MLLAMA_NAMES, '<|image|>'),
    'gemma3': ('Gemma3', dict(size=dict(height=16, width=16), image_seq_length=4), 'Gemma3', dict(image_seq_length=4),
               {70: '<image_soft_token>', 71: '<start_of_image>', 72: '<end_of_image>'}, '<start_of_image>'),
    'paligemma': ('Siglip', dict(size=dict(height=16, width=16), image_seq_length=16), 'PaliGemma', {}, {}, None),
}


# Pictures to text by an encoder and a decoder of other families.
LOOKS = dict(is_decoder=True, add_cross_attention=True, vocab_size=96, bos_token_id=0, eos_token_id=2, pad_token_id=1)
TROCR = dict(**LOOKS, model_type='trocr', d_model=24, decoder_layers=2, decoder_attention_heads=4, decoder_ffn_dim=40,
             max_position_embeddings=40)
BARTISH = {k: v for k, v in TROCR.items() if k != 'model_type'}
BERTISH = dict(**LOOKS, hidden_size=24, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40,
               max_position_embeddings=40)
GPT = dict(**{**LOOKS, 'pad_token_id': 2}, model_type='gpt2', n_embd=32, n_layer=2, n_head=4, n_positions=40)
EYE = {k: v for k, v in PLAIN.items() if k != 'num_labels'}
WINDOWED = {k: v for k, v in SWIN.items() if k != 'num_labels'}


def beheld(encoder, more, decoder):
    return ('vision-encoder-decoder', dict(encoder=dict(model_type=encoder, **more), decoder=decoder,
                                           decoder_start_token_id=2, eos_token_id=7, pad_token_id=1))


CAPTIONS = {
    'trocr': beheld('vit', EYE, dict(TROCR, cross_attention_hidden_size=32)),
    'trocr-b': beheld('deit', dict(EYE, image_size=[20, 30], qkv_bias=False), dict(
        TROCR, use_learned_position_embeddings=False, layernorm_embedding=False, scale_embedding=True,
        activation_function='relu', tie_word_embeddings=False)),
    'donut': beheld('donut-swin', dict(WINDOWED, image_size=[32, 24]), dict(BARTISH, model_type='mbart',
                                                                          scale_embedding=True)),
    'donut-b': beheld('donut-swin', dict(WINDOWED, qkv_bias=False, window_size=3), dict(
        BARTISH, model_type='bart', activation_function='relu', tie_word_embeddings=False)),
    'vit-gpt2': beheld('vit', EYE, GPT),
    'swin-gpt2': beheld('swin', WINDOWED, dict(GPT, n_embd=24, n_inner=40, activation_function='relu',
                                               scale_attn_by_inverse_layer_idx=True, tie_word_embeddings=False)),
    'dinov2-gpt2': beheld('dinov2', {k: v for k, v in DINO.items() if k != 'num_labels'}, dict(
        GPT, scale_attn_weights=False, layer_norm_epsilon=1e-2)),
    'vit-bert': beheld('vit', EYE, dict(BERTISH, model_type='bert', hidden_act='relu')),
    'beit-bert': beheld('beit', EYE, dict(BERTISH, model_type='bert', tie_word_embeddings=False, type_vocab_size=3)),
    'swinv2-roberta': beheld('swinv2', WINDOWED, dict(BERTISH, model_type='roberta', layer_norm_eps=1e-3)),
}


def caption_answers(model, _, seed):
    sines = getattr(getattr(model.decoder, 'model', None), 'decoder', None)
    if hasattr(getattr(sines, 'embed_positions', None), 'get_embedding'):  # transformers loses this table on loading
        positions = sines.embed_positions
        positions.weights = positions.get_embedding(42, positions.embedding_dim, positions.padding_idx)
    g = torch.Generator().manual_seed(seed)
    size = model.config.encoder.image_size
    pixels = torch.randn(2, 3, *(size if isinstance(size, list) else (size, size)), generator=g)
    begun = torch.randint(3, 96, (2, 9), generator=g)
    begun[:, 0] = model.config.decoder_start_token_id
    begun[1, 4] = 1  # padding's number, which some count no place for
    settings = dict(do_sample=False, num_beams=1, max_new_tokens=12)
    model.generation_config.forced_eos_token_id = None
    with torch.no_grad():
        out = {'pixels': pixels, 'decoder_input_ids': begun, 'logits': model(pixels, decoder_input_ids=begun).logits,
               'encoded': model.encoder(pixels).last_hidden_state,
               'beams': model.generate(pixels, **{**settings, 'num_beams': 3, 'length_penalty': 0.7})}
        model.generation_config.eos_token_id = None
        out['greedy'] = model.generate(pixels, **settings)
    return {k: v.numpy().astype(np.float32 if v.is_floating_point() else np.int32) for k, v in out.items()}


def painted(width, height, seed):
    """Smooth colours with edges in them, as a PNG file."""
    from PIL import Image
    y, x = np.mgrid[0:height, 0:width]
    waves = [np.sin(x / (3 + c) + seed) * 90 + np.cos(y / (2 + c)) * 30 + ((x // 5 + y // 4) % 2) * 8 for c in range(3)]
    return Image.fromarray(np.clip(np.stack(waves, 2) + 120, 0, 255).astype(np.uint8))


def chat_answers(name, known):
    import base64, io, transformers
    from tokenizers import Tokenizer, models, pre_tokenizers
    kind, fields, processor, more, names, here = CHATS[name]
    names = {**NAMED, **names}
    words = [names.get(i, f'w{i}') for i in range(max(80, 1 + max(names)))]
    own = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token='<unk>'))
    own.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split('\n', 'isolated'), pre_tokenizers.Split(' ', 'removed')])
    special = [w for w in words if w[0] in '<[']
    own.add_special_tokens(special)
    called = {'Gemma3': ('image', 'boi', 'eoi'), 'InternVL': ('context_image', 'start_image', 'end_image', 'video')}
    roles = {f'{role}_token': names[70 + i] for i, role in enumerate(called.get(processor, ()))}
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=own, bos_token='<s>', eos_token='</s>', unk_token='<unk>', pad_token='<pad>',
        extra_special_tokens=roles or {})
    given = {k: v for k, v in fields.items() if v is not None}
    pictures = getattr(transformers, f'{kind}ImageProcessorPil')(**given)
    template = here and TEMPLATE.replace('HERE', here)
    videos = {'video_processor': None} if processor in ('Qwen2VL', 'Qwen2_5_VL', 'LlavaOnevision', 'InternVL') else {}
    if processor == 'Pixtral':  # it asks for torchvision and takes no more of it than a size, which Pillow's has, too
        from transformers.models.pixtral import image_processing_pil_pixtral
        sys.modules['transformers.models.pixtral.image_processing_pixtral'] = image_processing_pil_pixtral
        from transformers.models.pixtral.processing_pixtral import PixtralProcessor as cls
    else:
        cls = getattr(transformers, f'{processor}Processor')
    cls.check_argument_for_proper_class = lambda *a, **k: None
    made_of = cls(image_processor=pictures, tokenizer=tokenizer, chat_template=template, **videos, **more)
    model = AutoModelForImageTextToText.from_pretrained(known, dtype=torch.float32, attn_implementation='eager').eval()
    model.generation_config.eos_token_id = None
    asked = {'one': [painted(31, 17, 1)], 'two': [painted(18, 29, 2), painted(45, 13, 3)]}
    asks = {}
    for key, images in list(asked.items())[:1 if name == 'paligemma' else 2]:
        if template:
            content = [{'type': 'image'} for _ in images] + [{'type': 'text', 'text': 'w20 w31 w42'}]
            text = made_of.apply_chat_template([{'role': 'user', 'content': content}], add_generation_prompt=True)
        else:
            text = 'w20 w31 w42'
        batch = [images] if processor in ('LlavaOnevision', 'Idefics3', 'Gemma3', 'Pixtral', 'Mllama') else images
        inputs = made_of(text=[text], images=batch, return_tensors='pt')
        with torch.no_grad():
            answer = model.generate(**inputs, max_new_tokens=6, do_sample=False)[0, inputs['input_ids'].shape[1]:]
        def file(image):
            out = io.BytesIO()
            image.save(out, 'PNG')
            return base64.b64encode(out.getvalue()).decode()
        pixels = inputs['pixel_values']
        if kind == 'Pixtral':
            pixels = patches_of(pixels, inputs['image_sizes'], 4)
        pixels = pixels.reshape(-1)
        asks[key] = {'images': [file(i) for i in images], 'ids': inputs['input_ids'][0].tolist(),
                     'pixels': [round(float(v), 6) for v in pixels[pixels != 0][::37]], 'answer': answer.tolist(),
                     'text': tokenizer.decode(answer, skip_special_tokens=True)}
    with tempfile.TemporaryDirectory() as at:
        tokenizer.save_pretrained(at)
        pictures.save_pretrained(at)
        read = lambda n: json.load(open(os.path.join(at, n)))
        stored = {'preprocessor_config.json': read('preprocessor_config.json'), 'tokenizer.json': read('tokenizer.json'),
                  'tokenizer_config.json': read('tokenizer_config.json')}
        if kind == 'Pixtral':  # whose patches and tokens the processor of both says
            stored['processor_config.json'] = {k: v for k, v in made_of.to_dict().items()
                                               if k not in ('image_processor', 'tokenizer')}
    return {'files': stored, 'template': template, 'asks': asks}


# Sounds with the folders' own extractors and letters: texts (CTC) and scores of classes.
LETTERS = ['<pad>', '<s>', '</s>', '<unk>', '|', *'ETAONIHSRDLU', "n't", '.', '?']
HEARD = {'wav2vec2': {}, 'wav2vec2-b': dict(do_lower_case=True, clean_up_tokenization_spaces=True),
         'hubert-b': dict(word_delimiter_token='A', pad_token='T'), 'wav2vec2-c': None, 'hubert-c': None, 'ast-b': None,
         'whisper-c': None, 'parakeet': {}}
PIECES = ['\u2581the', '\u2581a', 's', 't', 'e', '\u2581on', 'in', 'g', "'", '\u2581', 'r', 'n', 'o', '.', ',', 'u', 'l',
          'd', '<unk>', '<pad>']


def pieces_heard(model, extractor, samples, files):
    from tokenizers import AddedToken, Tokenizer, decoders, models
    from transformers import ParakeetTokenizer
    inner = Tokenizer(models.Unigram([(p, -1.0) for p in PIECES], unk_id=18))
    inner.decoder = decoders.Metaspace()
    inner.add_special_tokens([AddedToken('<unk>', special=True), AddedToken('<pad>', special=True)])
    tokenizer = ParakeetTokenizer(tokenizer_object=inner, pad_token='<pad>', unk_token='<unk>')
    files['tokenizer.json'] = json.loads(inner.to_str())
    files['tokenizer_config.json'] = dict(pad_token='<pad>', unk_token='<unk>')
    ids = model.generate(**extractor(samples, sampling_rate=16000, return_tensors='pt'))
    rows = np.random.default_rng(7).choice([0, 0, 1, 3, 3, 5, 18, 19, 19, 8, 4], (12, 30)).tolist()
    say = lambda row: tokenizer.decode(row, skip_special_tokens=True)
    return dict(files=files, text=say(ids[0].tolist()), spelt=[[row, say(row)] for row in rows])


def heard_answers(name, folder):
    import transformers
    at = np.arange(4000)
    whole = np.round(np.sin(at / 9) * 8000 + np.sin(at * at / 5000.0) * 4000 + 300).astype(np.int64)
    samples = (whole / 32768).astype(np.float32)
    spectral = name.startswith(('ast', 'whisper'))
    extractor = transformers.ParakeetFeatureExtractor(feature_size=16, hop_length=120, win_length=300) \
        if name == 'parakeet' else transformers.WhisperFeatureExtractor(feature_size=16, chunk_length=1) if name == 'whisper-c' \
        else transformers.ASTFeatureExtractor(num_mel_bins=16, max_length=20, mean=-3.5, std=2.5) if spectral \
        else transformers.Wav2Vec2FeatureExtractor(do_normalize=name != 'hubert-b')
    kind = AutoModelForCTC if HEARD[name] is not None else AutoModelForAudioClassification
    model = kind.from_pretrained(folder, dtype=torch.float32).eval()
    given = extractor(samples, sampling_rate=16000, return_tensors='pt')
    given = given['input_features' if 'input_features' in given else 'input_values']
    with torch.no_grad():
        logits = model(given).logits[0]
    files = {'preprocessor_config.json': {k: v for k, v in extractor.to_dict().items()
                                          if k not in ('mel_filters', 'window')}}
    found = {'samples': whole.tolist(), 'given': [round(float(v), 5) for v in given.reshape(-1)[::23]]}
    if HEARD[name] is None:
        return {**found, 'files': files, 'scores': logits.softmax(-1).tolist()}
    if name == 'parakeet':
        return {**found, **pieces_heard(model, extractor, samples, files)}
    with tempfile.TemporaryDirectory() as out:
        json.dump({w: i for i, w in enumerate(LETTERS)}, open(os.path.join(out, 'v.json'), 'w'))
        tokenizer = transformers.Wav2Vec2CTCTokenizer(os.path.join(out, 'v.json'), **HEARD[name])
        tokenizer.save_pretrained(out)
        for file in ('vocab.json', 'tokenizer_config.json'):
            files[file] = json.load(open(os.path.join(out, file)))
    rows = np.random.default_rng(7).choice([0, 0, 4, 4, 5, 6, 6, 7, 9, 17, 18, 19], (12, 40)).tolist()
    return {**found, 'files': files, 'text': tokenizer.decode(logits.argmax(-1)),
            'spelt': [[row, tokenizer.decode(row)] for row in rows]}


def stored_answers(stem, names, to, answer):
    """What `answer` makes of folders of these models, which are there already."""
    at = os.path.join(GOLDEN, f'{stem}.json.br')
    known = json.loads(node('brotliDecompressSync', open(at, 'rb').read()))['models']
    found = {}
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            json.dump(known[name]['config'], open(os.path.join(folder, 'config.json'), 'w'))
            save_file({k: made(s) for k, s in known[name]['tensors'].items()}, os.path.join(folder, 'model.safetensors'),
                      metadata={'format': 'pt'})
            found[name] = answer(name, folder)
        print(name)
    text = json.dumps(found, separators=(',', ':')).encode()
    open(os.path.join(GOLDEN, f'{to}.json.br'), 'wb').write(node('brotliCompressSync', text))


def node(call, data):
    """Brotli by Node.js, which whoever runs the tests has."""
    code = f"process.stdout.write(require('zlib').{call}(require('fs').readFileSync(0)))"
    return subprocess.run(['node', '-e', code], input=data, stdout=subprocess.PIPE, check=True).stdout


def uniform(n, seed):
    x = (np.arange(n, dtype=np.uint64) + np.uint64(seed)) & np.uint64(0xffffffff)
    low = np.uint64(0xffffffff)
    x = (x * np.uint64(0x9e3779b1)) & low
    x = ((x ^ (x >> np.uint64(15))) * np.uint64(0x85ebca77)) & low
    x = ((x ^ (x >> np.uint64(13))) * np.uint64(0xc2b2ae3d)) & low
    return (x ^ (x >> np.uint64(16))).astype(np.float64) / 4294967296 - 0.5


def made(spec):
    shape, seed, scale, offset, *numbers = spec
    if numbers:  # whole numbers below this one
        return np.floor((uniform(int(np.prod(shape)), seed) + 0.5) * numbers[0]).astype(np.int64).reshape(shape)
    return (uniform(int(np.prod(shape)), seed) * (2 * np.sqrt(3) * scale) + offset).astype(np.float32).reshape(shape)


def spec_of(name, t, seed):
    # Tables that the config alone makes.
    if name.endswith(('slope_rate', 'query_decay', 'key_decay', 'diagonal_decay', 'relative_position_index')):
        return None
    if name.endswith('tid2eid'):  # numbers of four experts
        return [list(t.shape), seed, 0.0, 0.0, 4]
    if name.endswith('balancing_biases'):  # transformers makes the last of them -1, whatever is stored
        return [list(t.shape), seed, 0.0, -1.0]
    if 'A_log' in name:
        return [list(t.shape), seed, 0.3, 0.4]
    if name.endswith('attention.self.logit_scale'):  # some beyond the largest that counts
        return [list(t.shape), seed, 0.9, 3.2]
    if t.ndim >= 2:
        # Deep networks of filters make noise of large weights.
        inputs = np.prod(t.shape[1:]) if re.match(r'(mobile|regnet|efficientnet|levit|bit|cvt|swiftformer)', name) else t.shape[-1]
        return [list(t.shape), seed, 0.6 if 'embed' in name else 1.3 / np.sqrt(inputs), 0]
    return [list(t.shape), seed, 0.2,
            float(round(t.mean())) if 'norm' in name or 'scal' in name or 'ln_' in name or '_bn.' in name
            or name.endswith('running_var') else 0.0]


# Of these a batch is compared with its rows.
ALONE = ('recurrent_gemma', 'rwkv', 'xlstm', 'deepseek_v4')


def alone(model, ids, mask, answer):
    """Of rows that each go without their padding."""
    return torch.cat([answer(row[int((m == 0).sum()):][None]) for row, m in zip(ids, mask)])


def padded_greedy(model, ids, mask):
    # RecurrentGemma's convolutions read padding, RWKV and xLSTM have no mask, and
    # DeepSeek V4 sums up padding with the text.
    if model.config.model_type in ALONE:
        made = alone(model, ids, mask, lambda row: model.generate(row, max_new_tokens=8, do_sample=False)[:, -8:])
        return torch.cat([ids, made], 1)
    # Falcon-H1 fails with a cache and padding, so it goes without a cache.
    cached = model.config.model_type != 'falcon_h1'
    return model.generate(ids, attention_mask=mask, max_new_tokens=8, do_sample=False, use_cache=cached)


# Searched by beams, too: keys, windows and states that go on from one another.
BEAMED = ('jamba', 'granite_swa', 'qwen3_next')


def answers(model, vocab, seed):
    g = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, vocab, (1, 40), generator=g)
    padded = torch.randint(3, vocab, (2, 16), generator=g)
    mask = torch.ones_like(padded)
    padded[0, :5], mask[0, :5] = 0, 0
    model.generation_config.eos_token_id = None
    more = dict(do_sample=False, use_cache=True)
    wide = dict(num_beams=4, eos_token_id=[5, 9, 20, 33, 41, 60, 77], pad_token_id=0, max_new_tokens=12)
    with torch.no_grad():
        prompt = ids[:, :10]
        out = {'input_ids': ids, 'logits': model(ids).logits, 'prompt': prompt,
               'greedy': model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=16, **more),
               'padded_ids': padded, 'padded_mask': mask,
               'padded_greedy': padded_greedy(model, padded, mask)}
        if model.config.model_type in BEAMED:
            every = torch.ones_like(prompt)
            out['beams'] = model.generate(prompt, attention_mask=every, num_return_sequences=4, **more, **wide)
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        kinds = {} if model.config.model_type in ('mamba', 'mamba2', 'falcon_mamba') else {'position_ids': positions}
        if model.config.model_type in ALONE:
            out['padded_last'] = alone(model, padded, mask, lambda row: model(row).logits[:, -2:])
        else:
            out['padded_last'] = model(padded, attention_mask=mask, **kinds).logits[:, 14:]
    return {k: v.numpy().astype(np.float32 if v.is_floating_point() else np.int32) for k, v in out.items()}


def run(stem, kinds, base, names, make, answer):
    """The models of a table into the two files of a stem; those that are there and not named stay."""
    packed = {n: os.path.join(GOLDEN, f'{stem}.{n}.br') for n in ('json', 'safetensors')}
    known, tensors = {'models': {}}, {}
    if os.path.exists(packed['json']):
        known = json.loads(node('brotliDecompressSync', open(packed['json'], 'rb').read()))
        tensors = load_bytes(node('brotliDecompressSync', open(packed['safetensors'], 'rb').read()))
    for name in names:
        kind, more = kinds[name]
        seed = zlib.crc32(name.encode())
        fields = {k: v for k, v in {**base, **more}.items() if k not in UNASKED.get(kind, ())}
        config, own = TEXTS[kind] if kind in TEXTS else (CONFIG_MAPPING[kind], make)
        begin = getattr(own, '_from_config' if kind in TEXTS else 'from_config', None)
        how = {} if stem in ('vision', 'sound', 'grounded') else dict(attn_implementation='eager')  # convolutions have none
        model = begin(config(**fields), **how) if begin else own(config(**fields))
        with tempfile.TemporaryDirectory() as at:
            model.save_pretrained(at)
            file = os.path.join(at, 'model.safetensors')
            specs, place = {}, seed
            stored = load_file(file)
            for key, t in sorted(stored.items()):
                spec = spec_of(key, t, place)
                if spec is not None:
                    specs[key], stored[key] = spec, made(spec)
                place = (place + t.size) & 0xffffffff
            save_file(stored, file, metadata={'format': 'pt'})
            config = json.load(open(os.path.join(at, 'config.json')))
            model = own.from_pretrained(at, dtype=torch.float32, **how).eval()
        # transformers writes the layers of ViT MSN's classifier without the prefix that the hub's files have.
        if name == 'vit_msn-c':
            specs = {f'vit.{k}' if k.startswith(('encoder.', 'layernorm.')) else k: v for k, v in specs.items()}
        known['models'][name] = {'config': config, 'tensors': specs}
        if make is AutoModelForSeq2SeqLM:
            model.rules = known['models'][name]['rules'] = RULES.get(name, {})
        for key, value in answer(model, fields.get('vocab_size'), seed).items():
            tensors[f'{name}/{key}'] = np.ascontiguousarray(value)
        print(name)
    text = json.dumps(known, separators=(',', ':')).encode()
    for data, to in ((text, packed['json']), (save(tensors), packed['safetensors'])):
        open(to, 'wb').write(node('brotliCompressSync', data))


# Encoders that bring programs of their own, which transformers has not: what these compute, in a few lines each.
def attended(w, at, x, heads, added, names):
    """Attention of many heads with something added to its scores; norms on queries and keys where they are stored."""
    b, t, width = x.shape
    split = lambda y: y.view(b, t, heads, -1).transpose(1, 2)
    def part(name, norm=None):
        y = torch.nn.functional.linear(x, w[f'{at}{name}.weight'], w.get(f'{at}{name}.bias'))
        return split(normed(w, f'{at}{norm}', y) if norm and f'{at}{norm}.weight' in w else y)
    q, k, v = (part(n, norm) for n, norm in names)
    scores = q @ k.transpose(2, 3) / (width // heads) ** 0.5 + added
    return (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, width)


def normed(w, at, x):
    return torch.nn.functional.layer_norm(x, x.shape[-1:], w[f'{at}.weight'], w[f'{at}.bias'], 1e-12)


def product(w, at, x):
    return torch.nn.functional.linear(x, w[f'{at}.weight'], w.get(f'{at}.bias'))


def jina_bert(c, w, ids, mask):
    """jina-embeddings-v2: ALiBi both ways, gates; that for code with norms on queries and keys and a second sum."""
    t, heads, inner = ids.shape[1], c['num_attention_heads'], c['intermediate_size']
    slopes = torch.tensor([2.0 ** (-8 * (h + 1) / heads) for h in range(heads)])
    far = (torch.arange(t)[:, None] - torch.arange(t)[None]).abs().float()
    added = -slopes[:, None, None] * far + (mask[:, None, None].float() - 1) * 1e9
    x = w['embeddings.word_embeddings.weight'][ids] + w['embeddings.token_type_embeddings.weight'][0]
    x = normed(w, 'embeddings.LayerNorm', x)
    act = {'geglu': torch.nn.functional.gelu, 'reglu': torch.relu}[c['feed_forward_type']]
    for i in range(c['num_hidden_layers']):
        at = f'encoder.layer.{i}.'
        code = f'{at}layer_norm_1.weight' in w
        names = (('query', 'layer_norm_q'), ('key', 'layer_norm_k'), ('value', None))
        y = attended(w, f'{at}attention.self.', x, heads, added, names)
        y = normed(w, f'{at}attention.output.LayerNorm', x + product(w, f'{at}attention.output.dense', y))
        if code:
            y = normed(w, f'{at}layer_norm_1', x + y)
        both = product(w, f'{at}mlp.' + ('up_gated_layer' if code else 'gated_layers'), y)
        first, second = both[..., :inner], both[..., inner:]
        fed = first * act(second) if code else act(first) * second
        fed = product(w, f'{at}mlp.' + ('down_layer' if code else 'wo'), fed)
        x = normed(w, at + ('layer_norm_2' if code else 'mlp.layernorm'), y + fed)
    return {'hidden': x, 'pooled': torch.tanh(product(w, 'pooler.dense', x[:, 0]))}


def nomic_moe(c, w, ids, mask):
    """And without the bias behind experts, which GGUF files leave out."""
    bare = {k: v * 0 if k.endswith('experts.bias') else v for k, v in w.items()}
    return {'hidden': nomic_layers(c, w, ids, mask), 'unbiased': nomic_layers(c, bare, ids, mask)}


def nomic_layers(c, w, ids, mask):
    """nomic-embed-text-v2-moe: ropes, every second layer a mixture whose weights are not normalised."""
    t, heads, width, inner = ids.shape[1], c['n_head'], c['n_embd'], c['n_inner']
    d = width // heads
    turns = torch.arange(t)[:, None] / c['rotary_emb_base'] ** (torch.arange(0, d, 2) / d)
    cos, sin = turns.cos(), turns.sin()
    def turned(q):
        a, b = q[..., :d // 2], q[..., d // 2:]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
    x = normed(w, 'emb_ln', w['embeddings.word_embeddings.weight'][ids] + w['embeddings.token_type_embeddings.weight'][0])
    added = (mask[:, None, None].float() - 1) * 1e9
    gelu = torch.nn.functional.gelu
    for i in range(c['n_layer']):
        at = f'encoder.layers.{i}.'
        qkv = product(w, f'{at}attn.Wqkv', x).chunk(3, -1)
        q, k, v = (y.view(*ids.shape, heads, d).transpose(1, 2) for y in qkv)
        y = ((turned(q) @ turned(k).transpose(2, 3) / d ** 0.5 + added).softmax(-1) @ v).transpose(1, 2)
        y = normed(w, f'{at}norm1', x + product(w, f'{at}attn.out_proj', y.reshape(*ids.shape, width)))
        if i % c['moe_every_n_layers'] == 1:
            each = product(w, f'{at}mlp.router.layer', y).softmax(-1)
            kept = torch.zeros_like(each).scatter(-1, each.topk(c['moe_top_k'], -1).indices, 1) * each
            w1, w2 = (w[f'{at}mlp.experts.mlp.{n}'].view(c['num_experts'], inner, width) for n in ('w1', 'w2'))
            fed = w[f'{at}mlp.experts.bias'] + sum(kept[..., e:e + 1] * (gelu(y @ w1[e].T) @ w2[e])
                                                   for e in range(c['num_experts']))
        else:
            fed = product(w, f'{at}mlp.fc2', gelu(product(w, f'{at}mlp.fc1', y)))
        x = normed(w, f'{at}norm2', y + fed)
    return x


def shapes_of_jina(c, code):
    h, f = c['hidden_size'], c['intermediate_size']
    both = lambda at, *shape: {f'{at}.weight': list(shape), f'{at}.bias': [shape[0]]}
    found = {'embeddings.word_embeddings.weight': [c['vocab_size'], h],
             'embeddings.token_type_embeddings.weight': [c['type_vocab_size'], h], **both('embeddings.LayerNorm', h),
             **both('pooler.dense', h, h)}
    for i in range(c['num_hidden_layers']):
        at = f'encoder.layer.{i}.'
        for n in ('self.query', 'self.key', 'self.value', 'output.dense'):
            found |= both(f'{at}attention.{n}', h, h)
        found |= both(f'{at}attention.output.LayerNorm', h)
        up, down, norm = ('up_gated_layer', 'down_layer', 'layer_norm_2') if code else ('gated_layers', 'wo', 'mlp.layernorm')
        found |= {f'{at}mlp.{up}.weight': [2 * f, h], **both(f'{at}mlp.{down}', h, f), **both(f'{at}{norm}', h)}
        if code:
            for n in ('attention.self.layer_norm_q', 'attention.self.layer_norm_k', 'layer_norm_1'):
                found |= both(f'{at}{n}', h)
    return found


def shapes_of_nomic(c):
    h, f, e = c['n_embd'], c['n_inner'], c['num_experts']
    both = lambda at, *shape: {f'{at}.weight': list(shape), f'{at}.bias': [shape[0]]}
    found = {'embeddings.word_embeddings.weight': [c['vocab_size'], h],
             'embeddings.token_type_embeddings.weight': [c['type_vocab_size'], h], **both('emb_ln', h)}
    for i in range(c['n_layer']):
        at = f'encoder.layers.{i}.'
        found |= {**both(f'{at}attn.Wqkv', 3 * h, h), **both(f'{at}attn.out_proj', h, h), **both(f'{at}norm1', h),
                  **both(f'{at}norm2', h)}
        if i % c['moe_every_n_layers'] == 1:
            found |= {f'{at}mlp.router.layer.weight': [e, h], f'{at}mlp.experts.mlp.w1': [e * f, h],
                      f'{at}mlp.experts.mlp.w2': [e * f, h], f'{at}mlp.experts.bias': [h]}
        else:
            found |= {**both(f'{at}mlp.fc1', f, h), **both(f'{at}mlp.fc2', h, f)}
    return found


JINA = dict(model_type='bert', vocab_size=96, hidden_size=48, num_hidden_layers=3, num_attention_heads=4, intermediate_size=64,
            max_position_embeddings=128, type_vocab_size=2, layer_norm_eps=1e-12, position_embedding_type='alibi',
            feed_forward_type='geglu', emb_pooler='mean', attn_implementation='torch', hidden_act='gelu', pad_token_id=0,
            model_max_length=128, architectures=['JinaBertForMaskedLM'])
NOMIC = dict(model_type='nomic_bert', vocab_size=96, n_embd=48, n_layer=3, n_head=4, n_inner=64, n_positions=128,
             type_vocab_size=1, layer_norm_epsilon=1e-12, activation_function='gelu', qkv_proj_bias=True, mlp_fc1_bias=True,
             mlp_fc2_bias=True, num_experts=5, moe_top_k=2, moe_every_n_layers=2, rotary_emb_base=10000.0,
             rotary_emb_fraction=1.0, prenorm=False, causal=False, use_rms_norm=False, rotary_emb_interleaved=False,
             rotary_emb_scale_base=None, rotary_scaling_factor=None, moe_normalize_expert_weights=False, ffn_div=1,
             expert_choice_router=False, num_shared_experts=0, pad_token_id=1, architectures=['NomicBertModel'])
PROGRAMS = {'jina-bert': (JINA, shapes_of_jina(JINA, False), jina_bert),
            'jina-bert-b': (dict(JINA, type_vocab_size=1), shapes_of_jina(dict(JINA, type_vocab_size=1), True), jina_bert),
            'jina-bert-c': (dict(JINA, feed_forward_type='reglu', num_attention_heads=2, num_hidden_layers=2),
                            shapes_of_jina(dict(JINA, num_hidden_layers=2), False), jina_bert),
            'nomic-moe': (NOMIC, shapes_of_nomic(NOMIC), nomic_moe),
            'nomic-moe-b': (dict(NOMIC, moe_top_k=3, n_layer=4, moe_every_n_layers=3),
                            shapes_of_nomic(dict(NOMIC, n_layer=4, moe_every_n_layers=3)), nomic_moe)}


def by_programs(names):
    paths = [os.path.join(GOLDEN, f'encoders.{n}.br') for n in ('json', 'safetensors')]
    known, tensors = (node('brotliDecompressSync', open(p, 'rb').read()) for p in paths)
    known, tensors = json.loads(known), load_bytes(tensors)
    for name in names:
        config, shapes, program = PROGRAMS[name]
        seed = place = zlib.crc32(name.encode())
        specs = {}
        for key, shape in sorted(shapes.items()):
            specs[key] = spec_of(key, np.ones(shape) if 'norm' in key.lower() or '_ln.' in key else np.zeros(shape), place)
            if key.endswith('.weight') and len(shape) == 1:
                specs[key][3] = 1.0
            elif key.endswith('.bias'):
                specs[key][3] = 0.0
            place = (place + int(np.prod(shape))) & 0xffffffff
        w = {k: torch.tensor(made(s)) for k, s in specs.items()}
        g = torch.Generator().manual_seed(seed)
        ids = torch.randint(3, 96, (2, 24), generator=g)
        mask = torch.ones_like(ids)
        ids[1, 17:], mask[1, 17:] = config['pad_token_id'], 0
        known['models'][name] = {'config': config, 'tensors': specs}
        for key, value in {'input_ids': ids, 'attention_mask': mask, **program(config, w, ids, mask)}.items():
            tensors[f'{name}/{key}'] = value.numpy().astype(np.float32 if value.is_floating_point() else np.int32)
        print(name)
    for data, to in ((json.dumps(known, separators=(',', ':')).encode(), paths[0]), (save(tensors), paths[1])):
        open(to, 'wb').write(node('brotliCompressSync', data))


def by_distances(name):
    """A stored Llama whose tokens go by distances (ALiBi) and turn nothing: all positions are 0."""
    paths = [os.path.join(GOLDEN, f'families.{n}.br') for n in ('json', 'safetensors')]
    known, tensors = (node('brotliDecompressSync', open(p, 'rb').read()) for p in paths)
    stored, tensors = json.loads(known)['models'][name], load_bytes(tensors)
    with tempfile.TemporaryDirectory() as at:
        json.dump(stored['config'], open(os.path.join(at, 'config.json'), 'w'))
        save_file({k: made(spec) for k, spec in stored['tensors'].items()}, os.path.join(at, 'model.safetensors'),
                  metadata={'format': 'pt'})
        model = AutoModelForCausalLM.from_pretrained(at, dtype=torch.float32, attn_implementation='eager').eval()
    ids = torch.tensor(tensors[f'{name}/input_ids']).long()
    t, heads = ids.shape[1], model.config.num_attention_heads
    slopes = torch.tensor([2.0 ** (-8 * (h + 1) / heads) for h in range(heads)])
    behind = (torch.arange(t)[:, None] - torch.arange(t)[None]).float()
    mask = torch.where(behind >= 0, -slopes[:, None, None] * behind, torch.finfo(torch.float32).min)[None]
    with torch.no_grad():
        tensors[f'{name}/alibi_logits'] = model(ids, attention_mask=mask, position_ids=torch.zeros_like(ids)).logits.numpy()
    open(paths[1], 'wb').write(node('brotliCompressSync', save(tensors)))


def main():
    asked = sys.argv[1:] or [*MODELS, *ENCODERS, *SEQ2SEQ, 'classifiers', 'tokens']
    decoders, encoders, pairs = ([n for n in asked if n in table] for table in (MODELS, ENCODERS, SEQ2SEQ))
    if decoders:
        run('families', MODELS, SIZES, decoders, AutoModelForCausalLM, answers)
    programs = [n for n in PROGRAMS if n in asked]
    if programs:
        by_programs(programs)
    if 'alibi' in asked:
        by_distances('llama')
    if encoders:
        halves = [n for n in encoders if n == 't5-encoder']
        run('encoders', ENCODERS, ENCODER, [n for n in encoders if n not in halves], AutoModel, encoder_answers)
        run('encoders', ENCODERS, dict(vocab_size=96, pad_token_id=0), halves, T5EncoderModel, encoder_answers)
    sorting = [n for n in CLASSIFIERS if 'classifiers' in asked or f'classifier:{n}' in asked]
    if sorting:
        run('classifiers', CLASSIFIERS, ENCODER, sorting, AutoModelForSequenceClassification, classifier_answers)
    for make, table in TOKENS.values():
        named = [n for n in table if 'tokens' in asked or f'token:{n}' in asked]
        if named:
            run('tokens', table, ENCODER, named, make, token_answers)
    for stem, tables, answer in (('vision', VISION, vision_answers), ('sound', SOUND, sound_answers),
                                 ('captions', {VisionEncoderDecoderModel: CAPTIONS}, caption_answers),
                                 ('sound', SPECTROGRAMS, spectrogram_answers), ('sound', MELS, spectrogram_answers),
                                 ('sound', BANDS, band_answers),
                                 ('speech', SPEECH, speech_answers),
                                 ('pictures', PICTURES, picture_answers), ('pictures', BLIPS, blip_answers)):
        for make, table in tables.items():
            names = [n for n in table if not sys.argv[1:] or stem in asked or f'{stem}:{n}' in asked]
            if names:
                run(stem, table, {}, names, make, answer)
    if 'chats' in asked:
        stored_answers('pictures', CHATS, 'chats', chat_answers)
    if 'heard' in asked:
        stored_answers('sound', HEARD, 'heard', heard_answers)
    if pairs:
        run('seq2seq', SEQ2SEQ, {}, pairs, AutoModelForSeq2SeqLM, seq2seq_answers)


if __name__ == '__main__':
    main()
