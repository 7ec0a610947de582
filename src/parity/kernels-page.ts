// docs/kernels.md: by module, how many kernels there are, which targets they were compiled for, and where they ran with
// what result.
import { jobsFor } from '../backends/gpu/aot.js';
import { ourSymbols, readManifest } from './manifest.js';
import { kernelModule, moduleNames } from '../backends/gpu/modules.js';
import { AMD_TARGETS, type Compiled, type RanDevice } from './compiled.js';
import type { Evidence } from './evidence.js';
import { type Cell, totals } from './report.js';

const row = (cells: readonly (string | number)[]): string => `| ${cells.join(' | ')} |`;
const table = (head: readonly string[], lines: readonly (readonly (string | number)[])[]): string =>
  [row(head), `|${head.map(() => '---|').join('')}`, ...lines.map(row)].join('\n');
const sum = (list: readonly number[]): number => list.reduce((n, x) => n + x, 0);

interface Count {
  readonly module: string;
  readonly kernels: number;
  readonly candle: number;
}
/**
 * Every module with its symbols; elementwise kernels are generated, and those a build ahead of time makes are counted.
 */
function counts(): Count[] {
  const ours = [...ourSymbols()];
  const candle = new Set(readManifest().map((c) => c.symbol));
  const generated = jobsFor('compute_80').filter((j) => j.names[0] === 'elementwise').length;
  return moduleNames().map((module) => {
    const own = ours.filter(([, o]) => o.module === module).map(([s]) => s);
    return {
      module,
      kernels: own.length + (module === 'elementwise' ? generated : 0),
      candle: own.filter((s) => candle.has(s)).length,
    };
  });
}

/** Cases of a device's evidence whose op launched a kernel of the module. */
function casesOn(evidence: readonly Evidence[], device: (name: string) => boolean, module: string): Cell[] {
  return evidence.flatMap(({ report }) =>
    report.cells.filter((c) => device(c.device) && report.uses[c.op]?.includes(module)),
  );
}
function outcome(cells: readonly Cell[]): string {
  const t = totals(cells);
  if (cells.length === 0) return '';
  return (
    `${t.exact} / ` +
    `${t.within + t.closer}${t.differs ? ` / ${t.differs}` : ''}${t.failed ? ` **${t.failed} failed**` : ''}`
  );
}

/** Kernels that ran, and those of Candle's among them. */
const ranText = (r: RanDevice['modules'][string] | undefined, candle: number): string =>
  r ? `${r.ran}${candle ? ` (${candle - r.missed.length} of Candle's)` : ''}` : '';

const COLUMNS: readonly (readonly [title: string, device: (name: string) => boolean])[] = [
  ['sim:32', (d) => d === 'sim:32'],
  ['sim:64', (d) => d === 'sim:64'],
  ['emulated AMD', (d) => d.startsWith('emu:')],
  ['NVIDIA GPU', (d) => d.startsWith('cuda:')],
  ['AMD GPU', (d) => d.startsWith('rocm:')],
];

function compiledTable(modules: readonly Count[], compiled: Compiled): string {
  const targets = AMD_TARGETS.filter((t) => compiled[t]);
  const lines = modules
    .filter((m) => targets.some((t) => compiled[t][m.module]))
    .map(({ module }) => {
      const records = targets.map((t) => compiled[t][module]);
      const most = (of: 'lds' | 'vgprs'): number => Math.max(...records.map((r) => r?.[of] ?? 0));
      return [
        `\`${module}\``,
        ...records.map((r) =>
          r ? `${r.good === r.kernels ? r.good : `**${r.good} of ${r.kernels}**`}${r.of ? ` (of ${r.of})` : ''}` : '',
        ),
        most('lds'),
        most('vgprs'),
      ];
    });
  const all = targets.map((t) => sum(Object.values(compiled[t]).map((r) => r.good)));
  return table(
    ['module', ...targets, 'most shared bytes', 'most vector registers'],
    [...lines, ['all', ...all, '', '']],
  );
}

/** Files of Candle's with host functions. */
const HOSTS = [
  {
    file: 'mmvq_gguf.cu',
    says: 'they choose one of the 243 kernels by the number of columns and launch it; here launches name the kernel',
  },
  {
    file: 'mmq_gguf/',
    says:
      'tiled products whose kernels are C++ templates without names, and the rounding of activations they want: ' +
      '`qmatmul` (modules `weights` and `gemm*`); the tiled kernels that have names are `mul_mat_*`',
  },
  {
    file: 'moe/',
    says:
      'products with experts whose kernels are C++ templates without names: `qmatmulExperts` and `matmulExperts` ' +
      '(modules `weights` and `experts`); those that have names are `indexed_moe_forward_*`',
  },
] as const;

type Modules = ReturnType<typeof counts>;
type Ran = Readonly<Record<string, RanDevice>>;

function title(modules: Modules): string {
  const candle = readManifest().filter((c) => c.kind === 'global');
  const elementwise = modules.find((m) => m.module === 'elementwise')!.kernels;
  return (
    `# Kernels\n\n${sum(modules.map((m) => m.kernels))} kernels in ${modules.length} modules of ` +
    `[kernels/](../kernels/README.md), one source for every GPU. ${sum(modules.map((m) => m.candle))} have the names ` +
    `and parameters of Candle's (it has ${candle.length}); the rest are our own. Elementwise kernels are generated ` +
    `from the op table: ${elementwise} are made ahead of time, fused chains as they come.`
  );
}

function hostFunctions(): string {
  const hosts = readManifest().filter((c) => c.kind === 'host_launcher');
  return (
    `## Candle's host functions\n\nCandle's sources also have ${hosts.length} C functions that run on the host ` +
    `and launch kernels; they are no kernels, so none stands here by name.\n\n${table(
      ['file', 'functions', 'what serves instead'],
      HOSTS.map(({ file, says }) => [file, hosts.filter((h) => h.file.startsWith(file)).length, says]),
    )}`
  );
}

function compiledForAmd(modules: Modules, compiled: Compiled): string {
  const compilers = [...new Set(AMD_TARGETS.flatMap((t) => Object.values(compiled[t] ?? {}).map((r) => r.compiler)))];
  return (
    `## Compiled for AMD\n\nKernels that were found in order, by target: symbol, offset and size of every ` +
    `argument as the launch code packs them, block size, shared memory within 64 KiB, and no private memory, ` +
    `so no spilled register, but for the kernels that scripts/check-kernels.ts lists with a reason. Compiled ` +
    `by ${compilers.join(' and ') || 'nothing yet'}; the record is [kernels-amd.json](kernels-amd.json), and ` +
    `\`npm run evidence:check\` fails where it is of other kernels than the present. Of the elementwise kernels ` +
    'every ' +
    `row and cast once and two rows in all variants are compiled; kernels for matrix units only where a GPU has ` +
    `them.\n\n${compiledTable(modules, compiled)}`
  );
}

function runOneByOne(modules: Modules, ran: Ran): string[] {
  const devices = Object.keys(ran);
  if (devices.length === 0) return [];
  const rows = modules
    .filter((m) => devices.some((d) => ran[d].modules[m.module]))
    .map(({ module, kernels, candle: theirs }) => [
      `\`${module}\``,
      kernels,
      theirs || '',
      ...devices.map((d) => ranText(ran[d].modules[module], theirs)),
    ]);
  const tests = devices.map((d) => `${d} ${ran[d].pass} passed, ${ran[d].fail} failed (${ran[d].date})`);
  return [
    `## Run one by one\n\nSymbols that the kernel tests launched, of those a module has (\`npm run ` +
      `kernels:run\`; [kernels-run.json](kernels-run.json)); results are held against Candle's CUDA ` +
      `numbers and plain loops.\n\n${table(['module', 'kernels', "Candle's", ...devices], rows)}\n\n` +
      `Tests: ${tests.join('; ')}.`,
  ];
}

function runByOps(modules: Modules, evidence: readonly Evidence[]): string {
  const columns = COLUMNS.filter(([, is]) => evidence.some((e) => e.report.devices.some((d) => is(d.name))));
  const nvidia = COLUMNS[3][1];
  const used = modules.filter(({ module }) => columns.some(([, is]) => casesOn(evidence, is, module).length > 0));
  const golden = (cells: readonly Cell[]): Cell[] =>
    cells.filter((c) => c.against === 'candle' || c.against === 'torch');
  return (
    `## Run by ops\n\nCases of ops that launch a kernel of the module, from the evidence in ` +
    `[docs/parity](parity/cuda-h200.json): bit for bit / within the bound / different on purpose, against the ` +
    `double-precision reference; the last column against Candle's CUDA output and PyTorch's numbers on the ` +
    `NVIDIA GPU.\n\n${table(
      ['module', 'kernels', ...columns.map(([title]) => title), 'golden cases on NVIDIA'],
      used.map(({ module, kernels }) => [
        `\`${module}\`${kernelModule(module).needs ? ` (${kernelModule(module).needs})` : ''}`,
        kernels,
        ...columns.map(([, is]) => outcome(casesOn(evidence, is, module).filter((c) => c.against === 'reference'))),
        outcome(golden(casesOn(evidence, nvidia, module))),
      ]),
    )}`
  );
}

export function kernelsPage(evidence: readonly Evidence[], compiled: Compiled, ran: Ran): string {
  const modules = counts();
  const sections = [
    '<!-- Made by `npm run docs` from kernels/, docs/kernels-amd.json, docs/kernels-run.json and ' +
      'docs/parity; do not edit. -->',
    title(modules),
    hostFunctions(),
    compiledForAmd(modules, compiled),
    ...runOneByOne(modules, ran),
    runByOps(modules, evidence),
    `Modules that no op launches by itself: those under Candle's names (above), \`decode*\` (the text engine: ` +
      `\`wick generate\`, its tests and [docs/bench-h200.json](bench-h200.json)), \`quantized\` where only its ` +
      `own tests launch it (above), and \`*-hopper\`, which only GPUs of sm_90 run.`,
  ];
  return `${sections.join('\n\n')}\n`;
}

export const KERNELS_PAGE = 'docs/kernels.md';
