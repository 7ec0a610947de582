// `wick completion SHELL`: what a shell runs to complete commands and their options.
import { ArgumentError } from '../base/errors.js';

const HELP = `wick completion bash|zsh|fish    a script for the shell

  bash    source <(wick completion bash)          in ~/.bashrc
  zsh     source <(wick completion zsh)           in ~/.zshrc, after compinit
  fish    wick completion fish | source           in ~/.config/fish/config.fish`;

/** The options that a command's help names. */
const optionsIn = (help: string): string[] => [...new Set(help.match(/(?<=[\s(|[])--[a-z][a-z-]*/g) ?? [])].sort();

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

/** Prints the script; `helpOf` gives a command's help, where its options stand. */
export async function completionScript(
  argv: readonly string[],
  summaries: Readonly<Record<string, string>>,
  helpOf: (name: string) => Promise<string>,
): Promise<number> {
  const [shell] = argv;
  if (shell === undefined || shell === '--help' || shell === '-h') {
    console.log(HELP);
    return 0;
  }
  if (!Object.hasOwn(SHELLS, shell))
    throw new ArgumentError(`completion: there is no script for ${JSON.stringify(shell)}; there is bash, zsh and fish`);
  const options = new Map<string, readonly string[]>();
  for (const name of Object.keys(summaries)) options.set(name, optionsIn(await helpOf(name)));
  console.log(SHELLS[shell](summaries, options));
  return 0;
}
