// `wick completion SHELL`: what a shell runs to complete commands and their options.
import { ArgumentError } from '../base/errors.js';

const HELP = `wick completion bash|zsh|fish    a script for the shell

  bash    source <(wick completion bash)          in ~/.bashrc
  zsh     source <(wick completion zsh)           in ~/.zshrc, after compinit
  fish    wick completion fish | source           in ~/.config/fish/config.fish`;

/**
 * The options that each command's help names, in a table: a shell asks when it starts, and should not wait until every
 * command's modules are read. test/cli-commands.test.ts compares it with the help.
 */
const OPTIONS: Readonly<Record<string, string>> = {
  tour: '',
  generate:
    'cache-type device dtype experts json max-tokens min-p model repetition-penalty seed temperature top-k top-p',
  chat:
    'cache-type context device dtype max-running max-tokens memory-share min-p model repetition-penalty seed ' +
    'system temperature top-k top-p',
  serve:
    'alias api-key-file cache-type context device dtype embedding-model experts host max-body max-running ' +
    'max-waiting memory-share model name only-embeddings origin port quiet rate timeout tool-format without-keys',
  embed: 'batch compare device json model normalize prompt',
  bench: 'batch cache-type context device dtype json max-running memory-share model prompt tokens',
  inspect: 'json',
  quantize: 'allow-requantize imatrix json threads type',
  perplexity: 'context device dtype json model quick stride',
  parity: 'against bail bench candle check device dtype from golden html jobs json model op out pin save strict',
  certify: 'device jobs out quick',
  ops: '',
  kernels: 'arch clear jobs ops out sample',
  devices: 'json',
  env: 'json',
  emulate: 'args block check genco grid offload-arch seed shared show target threads',
  completion: '',
};

type Options = ReadonlyMap<string, readonly string[]>;
const SHELLS: Readonly<Record<string, (summaries: Readonly<Record<string, string>>, options: Options) => string>> = {
  bash: (summaries, options) => `_wick() {
  local word="\${COMP_WORDS[COMP_CWORD]}" words
  if [ "$COMP_CWORD" -eq 1 ]; then words="${Object.keys(summaries).join(' ')} --help --version"
  else case "\${COMP_WORDS[1]}" in
${[...options].map(([name, list]) => `    ${name}) words="${list.join(' ')}" ;;`).join('\n')}
  esac; fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
  [ "\${#COMPREPLY[@]}" -gt 0 ] || COMPREPLY=($(compgen -f -- "$word"))
}
complete -o filenames -F _wick wick`,
  zsh: (summaries, options) => `_wick() {
  if (( CURRENT == 2 )); then
    local -a commands=(${Object.entries(summaries)
      .map(([name, summary]) => `'${name}:${summary.replaceAll("'", "'\\''")}'`)
      .join(' ')})
    _describe command commands
  else
    local -a options=()
    case "$words[2]" in
${[...options].map(([name, list]) => `      ${name}) options=(${list.join(' ')}) ;;`).join('\n')}
    esac
    _describe option options -o
    _files
  fi
}
compdef _wick wick`,
  fish: (summaries, options) =>
    [
      ...Object.entries(summaries).map(
        ([name, summary]) =>
          `complete -c wick -n __fish_use_subcommand -f -a ${name} -d '${summary.replaceAll("'", "\\'")}'`,
      ),
      ...[...options].flatMap(([name, list]) =>
        list.map((o) => `complete -c wick -n '__fish_seen_subcommand_from ${name}' -l ${o.slice(2)}`),
      ),
    ].join('\n'),
};

/** The options of a command, as they are typed. */
export const optionsOf = (command: string): string[] =>
  (Object.hasOwn(OPTIONS, command) ? OPTIONS[command] : '')
    .split(' ')
    .filter(Boolean)
    .map((o) => `--${o}`);

/** Prints the script, which knows these commands. */
export function completionScript(argv: readonly string[], summaries: Readonly<Record<string, string>>): number {
  const [shell] = argv;
  if (shell === undefined || shell === '--help' || shell === '-h') {
    console.log(HELP);
    return 0;
  }
  if (!Object.hasOwn(SHELLS, shell))
    throw new ArgumentError(`completion: there is no script for ${JSON.stringify(shell)}; there is bash, zsh and fish`);
  const options = new Map(Object.keys(OPTIONS).map((name) => [name, optionsOf(name)]));
  console.log(SHELLS[shell](summaries, options));
  return 0;
}
