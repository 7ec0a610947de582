// adapter_config.json as PEFT writes it: what is honoured, what means nothing to a loaded adapter, and what is refused.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { FormatError, UnsupportedError } from '../base/errors.js';
import { readJsonFile } from '../io/json-file.js';

/** What a loaded adapter takes from its config. */
export interface LoraConfig {
  /** What adapters of a rank are multiplied by. */
  scale(rank: number): number;
  /** The ranks that adapters may have: `r`, and those of `rank_pattern`. */
  readonly ranks: ReadonlySet<number>;
  /** Share of the input dropped while training. */
  readonly dropout: number;
  /** Names of layers, by their ends, each of which has an adapter; undefined where a pattern or more says which. */
  readonly targets: readonly string[] | undefined;
}

/**
 * Fields that mean nothing to a loaded adapter: the tensors say which layers it has, and what they began with; which
 * way round a file keeps the weights beside them is known of its family.
 */
const HARMLESS = new Set(
  `auto_mapping base_model_name_or_path inference_mode init_lora_weights peft_version revision task_type
  exclude_modules megatron_core layers_to_transform layers_pattern qalora_group_size loftq_config runtime_config
  eva_config corda_config lora_ga_config ensure_weight_tying fan_in_fan_out`.split(/\s+/),
);
const empty = (v: unknown): boolean =>
  v == null || v === false || v === 'none' || (typeof v === 'object' && Object.keys(v as object).length === 0);

/** A field's kind: whether a value is of it, and what it is called. */
interface Kind {
  readonly holds: (v: unknown) => boolean;
  readonly text: string;
}
const isRank = (v: unknown): boolean => Number.isInteger(v) && (v as number) >= 1;
const isStrings = (v: unknown): boolean => Array.isArray(v) && v.every((name) => typeof name === 'string');
/** Fields that are honoured, and what they hold where they are there. */
const HONOURED: Readonly<Record<string, Kind>> = {
  peft_type: { holds: (v) => v === 'LORA', text: 'LORA' },
  r: { holds: isRank, text: 'a whole number from 1' },
  lora_alpha: { holds: (v) => Number.isFinite(v), text: 'a number' },
  lora_dropout: { holds: (v) => typeof v === 'number' && v >= 0 && v < 1, text: 'a number from 0 to below 1' },
  use_rslora: { holds: (v) => typeof v === 'boolean', text: 'true or false' },
  rank_pattern: {
    holds: (v) => typeof v === 'object' && v !== null && Object.values(v).every(isRank),
    text: 'an object of ranks',
  },
  target_modules: { holds: (v) => typeof v === 'string' || isStrings(v), text: 'a list of names or a pattern' },
};
const REQUIRED = ['peft_type', 'r', 'lora_alpha'];

/** The config of a folder; what is not honoured is refused by its name. */
export function readLoraConfig(dir: string): LoraConfig {
  const path = join(dir, 'adapter_config.json');
  if (!existsSync(path)) throw new FormatError(`lora: ${path} is not there`);
  const config = readJsonFile(path);
  for (const [field, value] of Object.entries(config)) {
    if (Object.hasOwn(HONOURED, field) || HARMLESS.has(field) || empty(value)) continue;
    throw new UnsupportedError(`${path}: ${field} is ${JSON.stringify(value)}; it is not honoured`);
  }
  for (const [field, { holds, text }] of Object.entries(HONOURED)) {
    const value = config[field];
    if (value == null ? !REQUIRED.includes(field) : holds(value)) continue;
    const Fault = field === 'peft_type' ? UnsupportedError : FormatError;
    throw new Fault(`${path}: ${field} is ${JSON.stringify(value)}, not ${text}`);
  }
  const { r, lora_alpha, lora_dropout, use_rslora, rank_pattern, target_modules } = config as {
    r: number;
    lora_alpha: number;
    lora_dropout?: number;
    use_rslora?: boolean;
    rank_pattern?: Record<string, number>;
    target_modules?: string | string[];
  };
  const chosen = ['exclude_modules', 'layers_to_transform'].some((field) => !empty(config[field]));
  return {
    scale: (rank) => lora_alpha / (use_rslora ? Math.sqrt(rank) : rank),
    ranks: new Set([r, ...Object.values(rank_pattern ?? {})]),
    dropout: lora_dropout ?? 0,
    targets: Array.isArray(target_modules) && !chosen ? target_modules : undefined,
  };
}
