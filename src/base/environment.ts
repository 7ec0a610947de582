// Every environment variable that wick reads, with its meaning and default: no other file of src asks the environment.
// `wick env` prints this table, docs/environment.md is made from it, and a test holds scripts and tests to it.

export interface Variable {
  /** One sentence for people. */
  readonly meaning: string;
  /** What holds when the variable is not set or empty, in words. */
  readonly default: string;
  /** Whom it is for: users, people who work on kernels, people who run wick's own tests and benchmarks. */
  readonly group: Group;
}
export const GROUPS = {
  use: 'Using wick',
  kernels: 'Working on kernels: the simulation and the emulator',
  tests: 'Tests, scripts and benchmarks',
  system: 'Variables of the system that wick respects',
} as const;
export type Group = keyof typeof GROUPS;

const use = (meaning: string, fallback: string): Variable => ({ meaning, default: fallback, group: 'use' });
const kernels = (meaning: string, fallback: string): Variable => ({ meaning, default: fallback, group: 'kernels' });
const tests = (meaning: string, fallback: string): Variable => ({ meaning, default: fallback, group: 'tests' });
const system = (meaning: string, fallback: string): Variable => ({ meaning, default: fallback, group: 'system' });

export const VARIABLES = {
  WICK_DEVICE: use('The device of tensors that name none: cpu, cuda:0, rocm:1, ...', 'cpu'),
  WICK_CACHE_DIR: use(
    'The folder that holds compiled kernels and the CPU engine.',
    'wick in XDG_CACHE_HOME, else ~/.cache/wick',
  ),
  WICK_LIBRARY_PATH: use(
    "Folders that are searched first for the vendors' libraries, separated by colons.",
    "the loader's path and the vendors' usual places",
  ),
  WICK_PREBUILT_DIR: use(
    "Folders with kernels made ahead of time, separated by colons, searched before the package's own.",
    'kernels/prebuilt of the package',
  ),
  WICK_NO_RTC: use('1 keeps the run-time compilers (NVRTC, hipRTC) closed: only kernels made before are used.', '0'),
  WICK_CPU_ISA: use(
    'The instruction set of the CPU engine: sse2, avx2, avx512, neon, wasm (WebAssembly) or reference (slow, in ' +
      'TypeScript); an error where the CPU lacks it.',
    'the best this CPU has',
  ),
  WICK_CUDNN_ATTENTION: use(
    "0 keeps attention of 16-bit floats with wick's kernels, where cuDNN's would serve shapes on which it agrees " +
      'and is quicker.',
    '1',
  ),
  WICK_THREADS: use('How many threads the CPU engine uses, at most 256.', 'one per core this process may use'),
  WICK_COLLECTIVE: use(
    'What ranks of a distributed run talk through: nccl, mpi or socket.',
    'nccl on GPUs, mpi under mpirun, else socket',
  ),
  WICK_STACK: use(
    "full keeps wick's own lines in the stacks of errors, and commands print the stack of an unexpected one.",
    "stacks begin at the caller's line, commands print a sentence",
  ),
  WICK_NATIVE: use("The path of the CPU engine's shared library.", 'the prebuilt package, else built and cached'),
  WICK_API_KEYS: use('Keys that `wick serve` asks of its clients, separated by commas.', 'none'),

  WICK_SIM_ORDER: kernels("reverse runs a simulated block's threads from the last to the first.", 'first to last'),
  WICK_SIM_POISON: kernels('The byte that fresh memory of the simulation is filled with.', '0x7f'),
  WICK_SIM_SANITIZE: kernels(
    'address compiles simulated kernels with the address sanitizer; the process must run under its library.',
    'none',
  ),
  WICK_SIM_UNITS: kernels('one compiles simulated kernels one by one, for runs that want few of them.', 'in groups'),
  WICK_EMU_CHECK: kernels('1 makes emulated launches report races, reads of unwritten memory and the like.', '0'),
  WICK_EMU_SEED: kernels('The order in which the emulator runs waves.', '1'),
  WICK_EMU_THREADS: kernels('How many threads of the CPU the emulator uses.', 'one per core'),
  WICK_KERNEL_LINES: kernels('1 compiles kernels for AMD with line tables, so that reports quote the source.', '0'),

  WICK_TEST_DEVICES: tests('The devices that tests run on, separated by commas.', 'what each test names'),
  WICK_CASE: tests('Only cases of the op matrix whose names begin with this; several separated by commas.', 'all'),
  WICK_SAMPLE: tests('Only every n-th case of the op matrix.', 'all'),
  WICK_SHARD: tests('i/n: the i-th of n equal parts of the op matrix.', '0/1'),
  WICK_MODULES: tests('Only these kernel modules in the tests of kernels, separated by commas.', 'all'),
  WICK_KERNELS_ON: tests('Runs the tests of kernels on cuda, hip or emu.', 'the simulation'),
  WICK_LAUNCHED: tests('A folder where tests of kernels write which kernels they launched.', 'none'),
  WICK_GOLDEN: tests(
    'The folder with golden numbers.',
    'test/golden, else ../shared/golden, else the package wick-golden',
  ),
  WICK_FUZZ: tests('How much fuzzers try: mutations of each file format, requests to the server.', '2500 and 1000'),
  WICK_EMU_PROGRAMS: tests('FIRST:COUNT of the generated programs that the emulator is tested with.', '1:2'),
  WICK_EMU_TARGETS: tests('The emulated targets of those programs.', 'gfx90a,gfx1030'),
  WICK_EMU_DAY: tests('The day whose share of the emulated targets is run, such as 2026-11-16.', 'today (UTC)'),
  WICK_EMU_ONLY: tests('Only generated programs with this in their name.', 'all'),
  WICK_ABI_HEADERS: tests("Folders with vendors' headers for the check of prototypes, separated by colons.", 'none'),
  WICK_PEERS: tests('The folder where benchmarks find the libraries that they compare with.', '.cache/peers'),

  CXX: system(
    'The C++ compiler of the CPU engine and the simulation.',
    'g++, clang++ or c++, whichever is found first',
  ),
  LD_LIBRARY_PATH: system(
    "Where the system's loader looks for libraries first; they are checked before it loads them.",
    'none',
  ),
  XDG_CACHE_HOME: system('Where programs keep caches.', '~/.cache'),
  HF_HOME: system("Hugging Face's folder, whose hub/ is the cache of models.", 'huggingface in XDG_CACHE_HOME'),
  HF_HUB_CACHE: system('The cache of models itself.', 'hub in HF_HOME'),
  HF_ENDPOINT: system('The hub that models are fetched from.', 'https://huggingface.co'),
  HF_TOKEN: system('The token that is shown to the hub.', 'none'),
  HF_HUB_OFFLINE: system('1 takes models from the cache only.', '0'),
  ROCM_PATH: system('Where ROCm is installed.', '/opt/rocm'),
  CUDA_HOME: system('Where the CUDA toolkit is installed.', '/usr/local/cuda'),
  CUDA_PATH: system('The same by another name.', '/usr/local/cuda'),
  CUDA_VISIBLE_DEVICES: system('Which NVIDIA GPUs the driver shows; quoted in errors.', 'all'),
  HIP_VISIBLE_DEVICES: system('Which AMD GPUs the runtime shows; quoted in errors.', 'all'),
  ROCR_VISIBLE_DEVICES: system('The same, one layer deeper.', 'all'),
  VIRTUAL_ENV: system('A Python environment whose NVIDIA packages are searched for libraries.', 'none'),
  CONDA_PREFIX: system('A conda environment that is searched for libraries.', 'none'),
  RANK: system("torchrun's number of this process among all.", 'one process'),
  WORLD_SIZE: system("torchrun's count of processes.", 'one process'),
  LOCAL_RANK: system("torchrun's number of this process on its machine.", '0'),
  LOCAL_WORLD_SIZE: system("torchrun's count of processes on this machine.", 'all of them'),
  MASTER_ADDR: system('The machine of rank 0, where the ranks of a distributed run meet.', '127.0.0.1 on one machine'),
  MASTER_PORT: system('The port where they meet.', '29500, or one that is free under mpirun'),
  TORCHELASTIC_USE_AGENT_STORE: system('True where torchrun itself holds MASTER_PORT: wick takes the next.', 'False'),
  OMPI_COMM_WORLD_RANK: system("OpenMPI's number of this process.", 'one process'),
  OMPI_COMM_WORLD_SIZE: system("OpenMPI's count of processes.", 'one process'),
  OMPI_COMM_WORLD_LOCAL_RANK: system("OpenMPI's number of this process on its machine.", '0'),
  OMPI_COMM_WORLD_LOCAL_SIZE: system("OpenMPI's count of processes on this machine.", 'all of them'),
  PMI_RANK: system("MPICH's number of this process.", 'one process'),
  PMI_SIZE: system("MPICH's count of processes.", 'one process'),
  MPI_LOCALRANKID: system("MPICH's number of this process on its machine.", '0'),
  SLURM_STEP_ID: system('Set inside srun: only there Slurm says which process this is.', 'not under srun'),
  SLURM_PROCID: system("Slurm's number of this process.", 'one process'),
  SLURM_NTASKS: system("Slurm's count of processes.", 'one process'),
  SLURM_STEP_NUM_TASKS: system('The same for one srun of several in a job.', 'SLURM_NTASKS'),
  SLURM_LOCALID: system("Slurm's number of this process on its machine.", '0'),
  SLURM_JOB_ID: system('Gives the port where the ranks of a Slurm job meet.', '0'),
  SLURM_JOB_NODELIST: system('Its first machine is that of rank 0.', 'MASTER_ADDR must be set'),
  LWS_WORKER_INDEX: system("LeaderWorkerSet's number of this pod (Kubernetes).", 'one process'),
  LWS_GROUP_SIZE: system("LeaderWorkerSet's count of pods.", 'one process'),
  LWS_LEADER_ADDRESS: system("LeaderWorkerSet's first pod, where the ranks meet.", 'MASTER_ADDR'),
  NO_COLOR: system('Anything keeps colours out of what commands print.', 'colours on terminals'),
  TERM: system('The kind of terminal; dumb ones get no colours.', 'colours on terminals'),
  PATH: system('Programs; Pythons found on it are searched for NVIDIA packages.', 'none'),
} as const satisfies Readonly<Record<string, Variable>>;
export type VariableName = keyof typeof VARIABLES;

/** The value now; one that is empty counts as not set. */
export const env = (name: VariableName): string | undefined => process.env[name] || undefined;

/** Names that begin with WICK_ and mean nothing to wick: most likely misspelt. */
export const unknownVariables = (): string[] =>
  Object.keys(process.env)
    .filter((name) => name.startsWith('WICK_') && !Object.hasOwn(VARIABLES, name))
    .sort();

/** docs/environment.md. */
export function environmentPage(): string {
  const list = Object.entries<Variable>(VARIABLES);
  const sections = (Object.keys(GROUPS) as Group[]).map((group) => {
    const rows = list
      .filter(([, v]) => v.group === group)
      .map(([n, v]) => `| \`${n}\` | ${v.meaning} | ${v.default} |`);
    return `## ${GROUPS[group]}\n\n| variable | meaning | when not set |\n|---|---|---|\n${rows.join('\n')}`;
  });
  return [
    '<!-- Made by `npm run docs` from src/base/environment.ts; do not edit. -->',
    '# Environment variables\n\nAll that wick reads. `wick env` prints them with the values of your shell, and names ' +
      'that begin with `WICK_` but mean nothing.',
    ...sections,
  ]
    .join('\n\n')
    .concat('\n');
}
