// What transformers takes where a config of a type leaves a field out. Sizes are not among them: a config without its
// sizes is broken, whatever a class would make of it.
import type { Json } from '../files/config.js';

const TEXT = `
  apertus: hidden_act=xielu max_position_embeddings=65536 rms_norm_eps=1e-05 tie_word_embeddings=false
    attention_bias=false rope_theta=12000000
  arcee: hidden_act=relu2 max_position_embeddings=4096 rms_norm_eps=1e-05 tie_word_embeddings=false
    attention_bias=false mlp_bias=false
  bloom: layer_norm_epsilon=1e-05 apply_residual_connection_post_layernorm=false tie_word_embeddings=true
  cohere: logit_scale=0.0625 hidden_act=silu max_position_embeddings=8192 layer_norm_eps=1e-05
    tie_word_embeddings=true attention_bias=false use_qk_norm=false rope_theta=500000
  cohere2: logit_scale=0.0625 hidden_act=silu max_position_embeddings=8192 layer_norm_eps=1e-05
    tie_word_embeddings=true attention_bias=false sliding_window=4096
  cwm: hidden_act=silu max_position_embeddings=131072 rms_norm_eps=1e-05 tie_word_embeddings=false mlp_bias=false
    head_dim=128 sliding_window=8192 rope_theta=1000000 num_key_value_heads=8
  deepseek_v2: hidden_act=silu rms_norm_eps=1e-06 tie_word_embeddings=false attention_bias=false mlp_bias=false
    first_k_dense_replace=0 kv_lora_rank=512 q_lora_rank=1536 n_shared_experts=2 qk_nope_head_dim=128
    qk_rope_head_dim=64 routed_scaling_factor=1.0 topk_method=greedy norm_topk_prob=false v_head_dim=128
  deepseek_v3: n_shared_experts=1 routed_scaling_factor=2.5 kv_lora_rank=512 q_lora_rank=1536 qk_rope_head_dim=64
    v_head_dim=128 qk_nope_head_dim=128 n_group=8 topk_group=4 num_experts_per_tok=8 first_k_dense_replace=3
    norm_topk_prob=true hidden_act=silu max_position_embeddings=4096 rms_norm_eps=1e-06 tie_word_embeddings=false
    rope_interleave=true attention_bias=false
  deepseek_v32: n_shared_experts=1 routed_scaling_factor=2.5 kv_lora_rank=512 q_lora_rank=1536 qk_rope_head_dim=64
    v_head_dim=128 qk_nope_head_dim=128 n_group=8 topk_group=4 num_experts_per_tok=8 first_k_dense_replace=3
    norm_topk_prob=true hidden_act=silu max_position_embeddings=163840 rms_norm_eps=1e-06 tie_word_embeddings=false
    attention_bias=false index_topk=2048
  glm_moe_dsa: n_shared_experts=1 routed_scaling_factor=2.5 kv_lora_rank=512 q_lora_rank=2048 qk_rope_head_dim=64
    v_head_dim=256 qk_nope_head_dim=192 n_group=1 topk_group=1 num_experts_per_tok=8 first_k_dense_replace=3
    norm_topk_prob=true hidden_act=silu max_position_embeddings=202752 rms_norm_eps=1e-05 tie_word_embeddings=false
    attention_bias=false index_topk=2048
  dots1: n_group=1 topk_group=1 first_k_dense_replace=0 norm_topk_prob=false hidden_act=silu rms_norm_eps=1e-06
    tie_word_embeddings=false attention_bias=false routed_scaling_factor=1.0 sliding_window=4096
    max_window_layers=62
  ernie4_5: hidden_act=silu max_position_embeddings=131072 rms_norm_eps=1e-05 tie_word_embeddings=true use_bias=false
    head_dim=128 rope_theta=500000 num_key_value_heads=2
  ernie4_5_moe: hidden_act=silu max_position_embeddings=131072 rms_norm_eps=1e-05 tie_word_embeddings=true
    use_bias=false moe_k=6 moe_num_shared_experts=2 moe_layer_start_index=1 moe_layer_end_index=-1
    moe_layer_interval=1 moe_norm_min=1e-12 rope_theta=500000 num_key_value_heads=4
  exaone_moe: hidden_act=silu rms_norm_eps=1e-05 tie_word_embeddings=false sliding_window=4096
    sliding_window_pattern=4 first_k_dense_replace=1 num_experts_per_tok=8 num_shared_experts=1 norm_topk_prob=true
    routed_scaling_factor=2.5 n_group=1 topk_group=1
  exaone4: hidden_act=silu rms_norm_eps=1e-05 tie_word_embeddings=false sliding_window=4096 sliding_window_pattern=4
  falcon: layer_norm_epsilon=1e-05 alibi=false new_decoder_architecture=false multi_query=true parallel_attn=true
    bias=false activation=gelu tie_word_embeddings=true
  flex_olmo: hidden_act=silu max_position_embeddings=4096 rms_norm_eps=1e-06 tie_word_embeddings=false
    attention_bias=false num_experts_per_tok=5 norm_topk_prob=false rope_theta=500000
  gemma: head_dim=256 hidden_act=gelu_pytorch_tanh max_position_embeddings=8192 rms_norm_eps=1e-06
    tie_word_embeddings=true attention_bias=false
  gemma2: head_dim=256 hidden_activation=gelu_pytorch_tanh max_position_embeddings=8192 rms_norm_eps=1e-06
    tie_word_embeddings=true attention_bias=false query_pre_attn_scalar=256 sliding_window=4096
    final_logit_softcapping=30.0 attn_logit_softcapping=50.0 num_key_value_heads=4
  gemma3_text: head_dim=256 hidden_activation=gelu_pytorch_tanh max_position_embeddings=131072 rms_norm_eps=1e-06
    tie_word_embeddings=true attention_bias=false query_pre_attn_scalar=256 sliding_window=4096
    use_bidirectional_attention=false num_key_value_heads=4
  glm: head_dim=128 hidden_act=silu max_position_embeddings=131072 rms_norm_eps=1.5625e-07 tie_word_embeddings=false
    attention_bias=true num_key_value_heads=2
  glm4: head_dim=128 hidden_act=silu max_position_embeddings=131072 rms_norm_eps=1.5625e-07 tie_word_embeddings=false
    attention_bias=true num_key_value_heads=2
  glm4_moe: hidden_act=silu max_position_embeddings=131072 rms_norm_eps=1e-05 tie_word_embeddings=false
    attention_bias=false num_experts_per_tok=8 n_shared_experts=1 routed_scaling_factor=1.0 n_group=1 topk_group=1
    first_k_dense_replace=1 norm_topk_prob=true use_qk_norm=false num_key_value_heads=8
  glm4_moe_lite: n_shared_experts=1 routed_scaling_factor=1.8 kv_lora_rank=512 q_lora_rank=768 qk_rope_head_dim=64
    v_head_dim=256 qk_nope_head_dim=192 n_group=1 topk_group=1 num_experts_per_tok=4 norm_topk_prob=true
    hidden_act=silu max_position_embeddings=202752 rms_norm_eps=1e-05 tie_word_embeddings=false rope_interleave=true
    attention_bias=false
  gpt_bigcode: activation_function=gelu_pytorch_tanh layer_norm_epsilon=1e-05 scale_attn_weights=true
    multi_query=true tie_word_embeddings=true
  gpt_neox: hidden_act=gelu layer_norm_eps=1e-05 tie_word_embeddings=false use_parallel_residual=true
    attention_bias=true
  openai_privacy_filter: head_dim=64 sliding_window=128 tie_word_embeddings=false hidden_act=silu
    max_position_embeddings=131072 num_key_value_heads=2 num_experts_per_tok=4 num_local_experts=128 rms_norm_eps=1e-05
    attention_bias=true
  gpt_oss: head_dim=64 sliding_window=128 tie_word_embeddings=false hidden_act=silu max_position_embeddings=131072
    rms_norm_eps=1e-05 num_experts_per_tok=4 attention_bias=true rope_theta=150000 num_key_value_heads=8
  gpt2: activation_function=gelu_new layer_norm_epsilon=1e-05 scale_attn_weights=true
    scale_attn_by_inverse_layer_idx=false tie_word_embeddings=true
  gptj: rotary_dim=64 activation_function=gelu_new layer_norm_epsilon=1e-05 tie_word_embeddings=false
  granite: hidden_act=silu rms_norm_eps=1e-06 tie_word_embeddings=false attention_bias=false mlp_bias=false
    embedding_multiplier=1.0 logits_scaling=1.0 residual_multiplier=1.0 attention_multiplier=1.0
  granitemoe: hidden_act=silu rms_norm_eps=1e-06 tie_word_embeddings=false attention_bias=false
    embedding_multiplier=1.0 logits_scaling=1.0 residual_multiplier=1.0 attention_multiplier=1.0
    num_experts_per_tok=2
  granitemoeshared: hidden_act=silu rms_norm_eps=1e-06 tie_word_embeddings=false attention_bias=false
    embedding_multiplier=1.0 logits_scaling=1.0 residual_multiplier=1.0 attention_multiplier=1.0
    num_experts_per_tok=2
  granite_swa: hidden_act=silu rms_norm_eps=1e-05 tie_word_embeddings=true attention_bias=false mlp_bias=false
    embedding_multiplier=1.0 logits_scaling=1.0 residual_multiplier=1.0 attention_multiplier=1.0 sliding_window=128
    max_position_embeddings=8192 num_key_value_heads=4
  granitemoe_swa: hidden_act=silu rms_norm_eps=1e-06 tie_word_embeddings=false attention_bias=false
    embedding_multiplier=1.0 logits_scaling=1.0 residual_multiplier=1.0 attention_multiplier=1.0
    num_experts_per_tok=2 sliding_window=128
  xglm: activation_function=gelu max_position_embeddings=2048 scale_embedding=true tie_word_embeddings=true
    pad_token_id=1
  dbrx: tie_word_embeddings=false
  hy_v3: head_dim=128 hidden_act=silu max_position_embeddings=131072 rms_norm_eps=1e-05 tie_word_embeddings=false
    attention_bias=false mlp_bias=false num_experts_per_tok=8 num_shared_experts=1 router_scaling_factor=2.826
    num_key_value_heads=8
  helium: head_dim=128 hidden_act=silu max_position_embeddings=4096 rms_norm_eps=1e-08 tie_word_embeddings=false
    attention_bias=false mlp_bias=false rope_theta=100000
  hunyuan_v1_dense: hidden_act=silu rms_norm_eps=1e-05 tie_word_embeddings=false attention_bias=false
  hunyuan_v1_moe: hidden_act=silu rms_norm_eps=1e-05 tie_word_embeddings=false attention_bias=false moe_topk=1
  hyperclovax: hidden_act=silu rms_norm_eps=1e-06 tie_word_embeddings=false attention_bias=false mlp_bias=false
    embedding_multiplier=1.0 logits_scaling=1.0 residual_multiplier=1.0 use_post_norm=true
  jais2: hidden_act=relu2 max_position_embeddings=8192 tie_word_embeddings=false attention_bias=true mlp_bias=true
    layer_norm_eps=1e-05
  lfm2: max_position_embeddings=128000 norm_eps=1e-05 tie_word_embeddings=true conv_bias=false conv_L_cache=3
    block_multiple_of=256 block_ffn_dim_multiplier=1.0 block_auto_adjust_ff_dim=true rope_theta=1000000
    num_key_value_heads=8
  lfm2_moe: tie_word_embeddings=true max_position_embeddings=128000 norm_eps=1e-05 conv_bias=false conv_L_cache=3
    num_dense_layers=2 num_experts_per_tok=4 use_expert_bias=true routed_scaling_factor=1.0 norm_topk_prob=true
    rope_theta=1000000 num_key_value_heads=8
  llama: hidden_act=silu rms_norm_eps=1e-06 tie_word_embeddings=false attention_bias=false mlp_bias=false
  llama4_text: head_dim=128 hidden_act=silu max_position_embeddings=131072 rms_norm_eps=1e-05
    tie_word_embeddings=false num_experts_per_tok=1 interleave_moe_layer_step=1 use_qk_norm=true
    router_jitter_noise=0.0 no_rope_layer_interval=4 attention_chunk_size=8192 attn_temperature_tuning=true
    floor_scale=8192 attn_scale=0.1 attention_bias=false rope_theta=500000 num_key_value_heads=8
  minimax_m2: head_dim=128 hidden_act=silu max_position_embeddings=196608 rms_norm_eps=1e-06 tie_word_embeddings=false
    num_experts_per_tok=8 router_jitter_noise=0.0 rope_theta=5000000 num_key_value_heads=8
  ministral: hidden_act=silu max_position_embeddings=131072 rms_norm_eps=1e-06 tie_word_embeddings=false
    sliding_window=4096 num_key_value_heads=8
  ministral3: head_dim=128 hidden_act=silu max_position_embeddings=262144 rms_norm_eps=1e-05 tie_word_embeddings=false
    num_key_value_heads=8
  mistral: hidden_act=silu max_position_embeddings=131072 rms_norm_eps=1e-06 tie_word_embeddings=false
    sliding_window=4096 num_key_value_heads=8
  mixtral: hidden_act=silu max_position_embeddings=131072 rms_norm_eps=1e-05 tie_word_embeddings=false
    num_experts_per_tok=2 router_jitter_noise=0.0 rope_theta=1000000 num_key_value_heads=8
  mpt: expansion_ratio=4 layer_norm_epsilon=1e-05 no_bias=true tie_word_embeddings=true
  nemotron: hidden_act=relu2 max_position_embeddings=4096 norm_eps=1e-05 tie_word_embeddings=false
    attention_bias=false mlp_bias=false
  olmo: hidden_act=silu tie_word_embeddings=false attention_bias=false
  olmo2: hidden_act=silu tie_word_embeddings=false attention_bias=false rms_norm_eps=1e-05
  olmo3: hidden_act=silu tie_word_embeddings=false attention_bias=false rms_norm_eps=1e-05 sliding_window=4096
  olmoe: hidden_act=silu max_position_embeddings=4096 rms_norm_eps=1e-05 tie_word_embeddings=false
    attention_bias=false num_experts_per_tok=8 norm_topk_prob=false
  opt: do_layer_norm_before=true _remove_final_layer_norm=false activation_function=relu enable_bias=true
    layer_norm_elementwise_affine=true tie_word_embeddings=true
  persimmon: hidden_act=relu2 max_position_embeddings=16384 layer_norm_eps=1e-05 tie_word_embeddings=false
    qk_layernorm=true
  phi: hidden_act=gelu_new layer_norm_eps=1e-05 tie_word_embeddings=false qk_layernorm=false
  phi3: hidden_act=silu max_position_embeddings=4096 original_max_position_embeddings=4096 rms_norm_eps=1e-05
    tie_word_embeddings=false
  phimoe: hidden_act=silu max_position_embeddings=131072 rms_norm_eps=1e-05 tie_word_embeddings=false
    num_experts_per_tok=2 router_jitter_noise=0.01 attention_bias=false lm_head_bias=false rope_theta=1000000
    num_key_value_heads=8
  qwen2: hidden_act=silu max_position_embeddings=32768 rms_norm_eps=1e-06 tie_word_embeddings=false
    use_sliding_window=false sliding_window=4096 max_window_layers=28
  qwen2_moe: hidden_act=silu max_position_embeddings=32768 rms_norm_eps=1e-06 tie_word_embeddings=false
    use_sliding_window=false sliding_window=4096 max_window_layers=28 decoder_sparse_step=1 num_experts_per_tok=4
    norm_topk_prob=false qkv_bias=true
  qwen3: head_dim=128 hidden_act=silu max_position_embeddings=32768 rms_norm_eps=1e-06 tie_word_embeddings=false
    attention_bias=false use_sliding_window=false sliding_window=4096 max_window_layers=28
  qwen3_moe: hidden_act=silu max_position_embeddings=32768 rms_norm_eps=1e-06 tie_word_embeddings=false
    attention_bias=false use_sliding_window=false sliding_window=4096 decoder_sparse_step=1 num_experts_per_tok=8
    norm_topk_prob=false num_key_value_heads=4
  seed_oss: hidden_act=silu max_position_embeddings=524288 rms_norm_eps=1e-06 tie_word_embeddings=false
    attention_bias=true attention_out_bias=false mlp_bias=false head_dim=128 num_key_value_heads=8
  smollm3: hidden_act=silu max_position_embeddings=32768 rms_norm_eps=1e-06 use_sliding_window=false
    no_rope_layer_interval=4 attention_bias=false mlp_bias=false tie_word_embeddings=true rope_theta=2000000
    num_key_value_heads=4
  solar_open: hidden_act=silu max_position_embeddings=131072 rms_norm_eps=1e-05 tie_word_embeddings=false
    attention_bias=false num_experts_per_tok=8 n_shared_experts=1 routed_scaling_factor=1.0 n_group=1 topk_group=1
    norm_topk_prob=true head_dim=128 rope_theta=1000000 num_key_value_heads=8
  stablelm: hidden_act=silu max_position_embeddings=4096 layer_norm_eps=1e-05 tie_word_embeddings=false
    use_qkv_bias=false qk_layernorm=false use_parallel_residual=false
  starcoder2: hidden_act=gelu_pytorch_tanh max_position_embeddings=4096 norm_epsilon=1e-05 use_bias=true
    tie_word_embeddings=true num_key_value_heads=2
  vaultgemma: head_dim=256 hidden_activation=gelu_pytorch_tanh max_position_embeddings=8192 rms_norm_eps=1e-06
    tie_word_embeddings=true attention_bias=false query_pre_attn_scalar=256 sliding_window=4096
    final_logit_softcapping=30.0 attn_logit_softcapping=50.0 num_key_value_heads=4
  qwen3_next: hidden_act=silu max_position_embeddings=32768 rms_norm_eps=1e-06 tie_word_embeddings=false
    attention_bias=false head_dim=256 linear_conv_kernel_dim=4 linear_key_head_dim=128 linear_value_head_dim=128
    linear_num_key_heads=16 linear_num_value_heads=32 decoder_sparse_step=1 num_experts_per_tok=10 norm_topk_prob=true
    num_key_value_heads=2
  qwen3_5_text: hidden_act=silu max_position_embeddings=32768 rms_norm_eps=1e-06 tie_word_embeddings=false
    attention_bias=false head_dim=256 linear_conv_kernel_dim=4 linear_key_head_dim=128 linear_value_head_dim=128
    linear_num_key_heads=16 linear_num_value_heads=32 num_key_value_heads=4
  qwen3_5_moe_text: hidden_act=silu max_position_embeddings=32768 rms_norm_eps=1e-06 tie_word_embeddings=false
    attention_bias=false head_dim=256 linear_conv_kernel_dim=4 linear_key_head_dim=128 linear_value_head_dim=128
    linear_num_key_heads=16 linear_num_value_heads=32 num_experts_per_tok=8 num_key_value_heads=2
  granitemoehybrid: hidden_act=silu rms_norm_eps=1e-06 tie_word_embeddings=false attention_bias=false
    embedding_multiplier=1.0 logits_scaling=1.0 residual_multiplier=1.0 attention_multiplier=1.0
    num_experts_per_tok=2 mamba_n_heads=128 mamba_n_groups=1 mamba_d_state=256 mamba_d_head=auto mamba_d_conv=4
    mamba_expand=2 mamba_conv_bias=true mamba_proj_bias=false
  mamba2: head_dim=64 state_size=128 layer_norm_epsilon=1e-05 conv_kernel=4 n_groups=8 use_bias=false
    use_conv_bias=true hidden_act=silu tie_word_embeddings=false
  mamba: state_size=16 layer_norm_epsilon=1e-05 conv_kernel=4 use_bias=false use_conv_bias=true hidden_act=silu
    tie_word_embeddings=true
  falcon_mamba: state_size=16 layer_norm_epsilon=1e-05 conv_kernel=4 use_bias=false use_conv_bias=true hidden_act=silu
    mixer_rms_eps=1e-06 tie_word_embeddings=true
  gpt_neo: window_size=256 activation_function=gelu_new layer_norm_epsilon=1e-05 max_position_embeddings=2048
    tie_word_embeddings=true
  codegen: rotary_dim=64 activation_function=gelu_new layer_norm_epsilon=1e-05 tie_word_embeddings=false
  nanochat: hidden_act=relu2 max_position_embeddings=2048 rms_norm_eps=1e-06 final_logit_softcapping=15.0
    attention_bias=false tie_word_embeddings=false
  afmoe: hidden_act=silu max_position_embeddings=16384 rms_norm_eps=1e-05 tie_word_embeddings=false head_dim=128
    num_dense_layers=1 num_experts=64 num_experts_per_tok=6 num_shared_experts=2 route_scale=1.0
    global_attn_every_n_layers=4 sliding_window=1024 mup_enabled=false attention_bias=false
  youtu: hidden_act=silu max_position_embeddings=131072 rms_norm_eps=1e-06 tie_word_embeddings=true kv_lora_rank=512
    q_lora_rank=1536 qk_rope_head_dim=64 v_head_dim=128 qk_nope_head_dim=128 rope_interleave=true attention_bias=false
  mellum: hidden_act=silu head_dim=128 max_position_embeddings=131072 rms_norm_eps=1e-06 tie_word_embeddings=false
    attention_bias=false sliding_window=1024 num_experts_per_tok=8 norm_topk_prob=true num_key_value_heads=4
  minicpm3: hidden_act=silu max_position_embeddings=32768 rms_norm_eps=1e-05 tie_word_embeddings=true kv_lora_rank=256
    q_lora_rank=768 qk_nope_head_dim=64 qk_rope_head_dim=32 attention_bias=false mlp_bias=false scale_emb=12
    scale_depth=1.4 dim_model_base=256
  qwen2_vl_text: hidden_act=silu max_position_embeddings=32768 rms_norm_eps=1e-05 tie_word_embeddings=false
    use_sliding_window=false sliding_window=4096 max_window_layers=80 rope_theta=1000000 num_key_value_heads=8
  qwen2_5_vl_text: hidden_act=silu max_position_embeddings=32768 rms_norm_eps=1e-05 tie_word_embeddings=false
    use_sliding_window=false sliding_window=4096 max_window_layers=80 rope_theta=1000000 num_key_value_heads=8
  qwen3_vl_text: hidden_act=silu max_position_embeddings=128000 rms_norm_eps=1e-06 tie_word_embeddings=false
    attention_bias=false head_dim=128 rope_theta=500000
  qwen3_vl_moe_text: hidden_act=silu max_position_embeddings=128000 rms_norm_eps=1e-06 tie_word_embeddings=false
    attention_bias=false decoder_sparse_step=1 num_experts_per_tok=4 norm_topk_prob=true rope_theta=500000
  bamba: hidden_act=silu rms_norm_eps=1e-05 tie_word_embeddings=false attention_bias=false mlp_bias=false
    max_position_embeddings=262144 mamba_n_heads=128 mamba_n_groups=1 mamba_d_state=256 mamba_d_head=auto
    mamba_d_conv=4 mamba_expand=2 mamba_conv_bias=true mamba_proj_bias=false num_key_value_heads=8
  falcon_h1: hidden_act=silu rms_norm_eps=1e-05 tie_word_embeddings=false attention_bias=false mlp_bias=false
    max_position_embeddings=8192 mamba_d_ssm=1024 mamba_n_heads=128 mamba_n_groups=1 mamba_d_state=256
    mamba_d_head=auto mamba_d_conv=4 mamba_expand=2 mamba_conv_bias=true mamba_proj_bias=false
    mamba_norm_before_gate=true mamba_rms_norm=false projectors_bias=false lm_head_multiplier=1.0
    embedding_multiplier=1.0 key_multiplier=1.0 attention_out_multiplier=1.0 attention_in_multiplier=1.0
    ssm_in_multiplier=1.0 ssm_out_multiplier=1.0 num_key_value_heads=8
  nemotron_h: mlp_hidden_act=relu2 mamba_hidden_act=silu layer_norm_epsilon=1e-05 mlp_bias=false use_bias=false
    use_conv_bias=true head_dim=128 max_position_embeddings=4096 n_groups=8 conv_kernel=4 ssm_state_size=128
    mamba_head_dim=64 num_experts_per_tok=2 routed_scaling_factor=1.0 n_group=1 topk_group=1 norm_topk_prob=true
    time_step_min=0.001 num_key_value_heads=8
  jamba: hidden_act=silu rms_norm_eps=1e-06 tie_word_embeddings=false max_position_embeddings=262144
    num_experts_per_tok=2 num_experts=16 expert_layer_period=2 expert_layer_offset=1 attn_layer_period=8
    attn_layer_offset=4 mamba_d_state=16 mamba_d_conv=4 mamba_expand=2 mamba_dt_rank=auto mamba_conv_bias=true
    mamba_proj_bias=false num_key_value_heads=8
  bitnet: hidden_act=relu2 max_position_embeddings=2048 rms_norm_eps=1e-05 tie_word_embeddings=false
    attention_bias=false num_key_value_heads=5 rope_theta=500000
  biogpt: hidden_act=gelu max_position_embeddings=1024 scale_embedding=true tie_word_embeddings=true
  openai-gpt: afn=gelu layer_norm_epsilon=1e-05 tie_word_embeddings=true
  gemma3n_text: head_dim=256 hidden_activation=gelu_pytorch_tanh max_position_embeddings=32768 rms_norm_eps=1e-06
    tie_word_embeddings=true attention_bias=false sliding_window=512 final_logit_softcapping=30
    hidden_size_per_layer_input=256 vocab_size_per_layer_input=262144 altup_active_idx=0 altup_correct_scale=true
    altup_num_inputs=4 num_kv_shared_layers=15 laurel_rank=64 num_key_value_heads=2
  gemma4_text: head_dim=256 hidden_activation=gelu_pytorch_tanh max_position_embeddings=131072 rms_norm_eps=1e-06
    tie_word_embeddings=true attention_bias=false sliding_window=512 hidden_size_per_layer_input=256
    vocab_size_per_layer_input=262144 attention_k_eq_v=false num_kv_shared_layers=0 enable_moe_block=false
    use_double_wide_mlp=false num_key_value_heads=4
  gemma4_unified_text: head_dim=256 hidden_activation=gelu_pytorch_tanh max_position_embeddings=262144
    rms_norm_eps=1e-06 tie_word_embeddings=true attention_bias=false sliding_window=1024 attention_k_eq_v=false
    num_kv_shared_layers=0 use_double_wide_mlp=false num_key_value_heads=4
  mllama_text_model: hidden_act=silu max_position_embeddings=131072 rms_norm_eps=1e-05 tie_word_embeddings=false
    num_key_value_heads=8
  emu3_text_model: hidden_act=silu max_position_embeddings=9216 rms_norm_eps=1e-05 tie_word_embeddings=false
    num_key_value_heads=8 rope_theta=1000000
  glm4v_moe_text: hidden_act=silu max_position_embeddings=65536 rms_norm_eps=1e-05 tie_word_embeddings=false
    attention_bias=true num_experts_per_tok=8 n_shared_experts=1 routed_scaling_factor=1.0 n_group=1 topk_group=1
    first_k_dense_replace=1 norm_topk_prob=true num_key_value_heads=8
  glm_ocr_text: hidden_act=silu max_position_embeddings=131072 rms_norm_eps=1e-05 num_key_value_heads=8
  paddleocr_vl_text: hidden_act=silu max_position_embeddings=131072 rms_norm_eps=1e-05 tie_word_embeddings=true
    use_bias=false head_dim=128 num_key_value_heads=2
  modernbert-decoder: hidden_activation=gelu max_position_embeddings=8192 norm_eps=1e-05 tie_word_embeddings=true
    attention_bias=false mlp_bias=false norm_bias=false decoder_bias=true classifier_bias=false
    classifier_activation=gelu local_attention=128
  gpt_neox_japanese: hidden_act=gelu max_position_embeddings=2048 layer_norm_eps=1e-05 tie_word_embeddings=true
    intermediate_multiple_size=4
  ctrl: n_positions=256 layer_norm_epsilon=1e-06 tie_word_embeddings=true
  aria_text: hidden_act=silu max_position_embeddings=2048 rms_norm_eps=1e-06 tie_word_embeddings=false
    attention_bias=false mlp_bias=false moe_num_experts=8 moe_topk=2 moe_num_shared_experts=2
  olmo_hybrid: hidden_act=silu max_position_embeddings=65536 rms_norm_eps=1e-06 tie_word_embeddings=false
    attention_bias=false linear_conv_kernel_dim=4 linear_allow_neg_eigval=true
  kimi_linear: hidden_act=silu model_max_length=1048576 rms_norm_eps=1e-05 tie_word_embeddings=false
    attention_bias=false kv_lora_rank=512 qk_rope_head_dim=64 v_head_dim=128 qk_nope_head_dim=128 linear_head_dim=128
    linear_num_heads=32 linear_conv_kernel_dim=4 num_expert_group=1 topk_group=1 moe_renormalize=true
    routed_scaling_factor=2.446 num_experts_per_token=8 num_shared_experts=1
  axk1: hidden_act=silu max_position_embeddings=32768 rms_norm_eps=1e-06 tie_word_embeddings=false
    attention_bias=false n_shared_experts=1 routed_scaling_factor=2.5 kv_lora_rank=512 q_lora_rank=1536
    qk_rope_head_dim=64 v_head_dim=128 qk_nope_head_dim=128 n_group=8 topk_group=4 num_experts_per_tok=8
    first_k_dense_replace=1 norm_topk_prob=true rope_interleave=true
  mistral4: hidden_act=silu max_position_embeddings=1048576 rms_norm_eps=1e-06 tie_word_embeddings=false
    attention_bias=false n_shared_experts=1 routed_scaling_factor=1.0 kv_lora_rank=256 q_lora_rank=1024
    qk_rope_head_dim=64 v_head_dim=128 qk_nope_head_dim=64 n_group=1 topk_group=1 num_experts_per_tok=4
    first_k_dense_replace=0 norm_topk_prob=true rope_interleave=true
  laguna: head_dim=128 hidden_act=silu max_position_embeddings=131072 rms_norm_eps=1e-06 tie_word_embeddings=false
    attention_bias=false num_experts_per_tok=8 gating=true moe_routed_scaling_factor=1.0
    moe_apply_router_weight_on_input=false moe_router_logit_softcapping=0.0 sliding_window=512
    shared_expert_intermediate_size=512 num_key_value_heads=8
  minimax_m3_vl_text: head_dim=128 hidden_act=silu max_position_embeddings=524288 rms_norm_eps=1e-06
    tie_word_embeddings=false num_key_value_heads=4 swiglu_alpha=1.702 swiglu_limit=7.0 routed_scaling_factor=2.0
    num_experts_per_tok=4 index_block_size=128 index_topk_blocks=16
  cohere_compass_text: hidden_act=silu max_position_embeddings=8192 layer_norm_eps=1e-05 tie_word_embeddings=true
    attention_bias=false sliding_window=4096
  longcat_flash: hidden_act=silu max_position_embeddings=131072 rms_norm_eps=1e-05 tie_word_embeddings=false
    attention_bias=false q_lora_rank=1536 kv_lora_rank=512 qk_nope_head_dim=128 qk_rope_head_dim=64 head_dim=64
    v_head_dim=128 moe_topk=12 zero_expert_num=256 routed_scaling_factor=6.0 rope_theta=10000000
  hrm_text: head_dim=128 hidden_act=silu max_position_embeddings=2048 rms_norm_eps=1e-06 tie_word_embeddings=false
    attention_bias=false mlp_bias=false H_cycles=2 L_cycles=3
  xlstm: use_bias=false tie_word_embeddings=false norm_eps=1e-06 eps=1e-06 qk_dim_factor=0.5 v_dim_factor=1.0
    ffn_proj_factor=2.667 ffn_round_up_to_multiple_of=64 gate_soft_cap=15.0 output_logit_soft_cap=30.0 num_heads=8
  zaya: hidden_act=silu max_position_embeddings=131072 rms_norm_eps=1e-05 tie_word_embeddings=true head_dim=128
    num_key_value_heads=2 attention_bias=false lm_head_bias=false cca_time0=2 cca_time1=2 num_experts_per_tok=1
  deepseek_v4: hidden_act=silu max_position_embeddings=1048576 rms_norm_eps=1e-06 tie_word_embeddings=false
    mlp_bias=false head_dim=512 q_lora_rank=1024 num_experts_per_tok=6 scoring_func=sqrtsoftplus
    routed_scaling_factor=1.5 hc_mult=4 hc_sinkhorn_iters=20 hc_eps=1e-06 swiglu_limit=10.0 sliding_window=128 o_groups=8
    o_lora_rank=1024 index_n_heads=64 index_head_dim=128 index_topk=512
  axk2: hidden_act=silu max_position_embeddings=131072 rms_norm_eps=1e-06 tie_word_embeddings=false
    attention_bias=false n_shared_experts=1 routed_scaling_factor=2.5 kv_lora_rank=128 q_lora_rank=384
    qk_rope_head_dim=32 v_head_dim=64 qk_nope_head_dim=64 num_experts_per_tok=8 first_k_dense_replace=1
    norm_topk_prob=true index_topk=2048 gated_norm_rank=16
  hy_v4: hidden_act=silu max_position_embeddings=262144 rms_norm_eps=1e-05 tie_word_embeddings=false
    attention_bias=false n_shared_experts=1 routed_scaling_factor=2.827 kv_lora_rank=512 q_lora_rank=1536
    qk_rope_head_dim=64 v_head_dim=256 qk_nope_head_dim=192 num_experts_per_tok=8 n_group=1 topk_group=1
    norm_topk_prob=true index_topk=2048 hc_mult=4 hc_magnitude=2.0 hc_eps=1e-06 swiglu_limit=10.0
  mimo_v2_flash: head_dim=192 hidden_act=silu max_position_embeddings=131072 rms_norm_eps=1e-05
    tie_word_embeddings=false attention_bias=false routed_scaling_factor=1.0 v_head_dim=128 n_group=1 topk_group=1
    num_experts_per_tok=8 norm_topk_prob=true sliding_window=128 attention_value_scale=0.707 num_key_value_heads=4`;

const value = (text: string): unknown => {
  if (text === 'true' || text === 'false') return text === 'true';
  return /^[-\d.]/.test(text) ? Number(text) : text;
};
const DEFAULTS: ReadonlyMap<string, Json> = new Map(
  TEXT.trim()
    .split(/\n(?= {2}\S)/)
    .map((entry) => {
      const [type, fields] = entry.trim().split(/:\s*/);
      const pairs = fields.split(/\s+/).map((f) => f.split('=') as [string, string]);
      return [type, Object.fromEntries(pairs.map(([k, v]) => [k, value(v)]))];
    }),
);

export const defaultsOf = (type: unknown): Json => DEFAULTS.get(type as string) ?? {};

/** Sizes by the types whose classes in transformers do not have them. */
const UNREAD: Readonly<Record<string, readonly string[]>> = Object.fromEntries(
  Object.entries({
    num_key_value_heads: `biogpt bloom codegen ctrl dbrx falcon falcon_mamba gpt-sw3 gpt2 gpt_bigcode gpt_neo gpt_neox
      gpt_neox_japanese gptj hrm_text mamba mamba2 modernbert-decoder mpt openai-gpt opt persimmon rwkv xglm xlstm`,
    intermediate_size: `bloom codegen ctrl dbrx falcon gpt-sw3 gpt2 gpt_bigcode gpt_neox_japanese gptj mamba2 mpt openai-gpt opt xglm xlstm zaya`,
    num_attention_heads: 'falcon_mamba mamba mamba2 rwkv xlstm',
    max_position_embeddings: 'bloom falcon_mamba mamba mamba2 mpt recurrent_gemma xlstm',
  }).map(([name, types]) => [name, types.split(/\s+/)]),
);
/** A config without them: one that a caller gave for all kinds of models is kept there, and nothing reads it. */
export const withoutUnread = (json: Json): Json =>
  Object.fromEntries(Object.entries(json).filter(([name]) => !UNREAD[name]?.includes(json.model_type as string)));
