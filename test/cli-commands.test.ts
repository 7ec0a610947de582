// The commands as a shell sees them: help, version, completion, closed pipes, colours, errors in one sentence.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';
import { packageRoot, packageVersion } from '../src/base/paths.js';
import { helpLines } from '../src/cli/chat-commands.js';
import { builtinModel } from '../src/engine/index.js';
import { EmbeddingModel } from '../src/models/index.js';
import { main, scratch, wick, wickIn } from './cli-support.js';
import { noModel } from './server-support.js';
import { withTokenizer } from './small-models.js';

const names = (): string[] => [...wick('--help').stdout.matchAll(/^ {2}wick (\S+)/gm)].map((m) => m[1]);

test('the version', () => assert.equal(wick('--version').stdout, `${packageVersion()}\n`));

test('every command has help, which does nothing else', () => {
  const all = names();
  assert.ok(all.length >= 15, all.join(' '));
  const empty = scratch();
  for (const name of all) {
    const { status, stdout, stderr } = wickIn(empty, name, '--help');
    assert.equal(status, 0, `${name}: ${stderr}`);
    assert.match(stdout, new RegExp(`wick ${name}`));
    assert.equal(stderr, '', name);
    for (const line of stdout.split('\n')) assert.ok(line.length <= 120, `${name}: ${line}`);
    assert.deepEqual(readdirSync(empty), []);
  }
});

test('errors are one sentence, without a stack', () => {
  for (const [args, status] of [
    [['nonsense'], 2],
    [['generate', '--nonsense'], 2],
    [['generate', '--temperature', 'hot', 'x'], 1],
    [['generate', '--seed', '1.5', 'x'], 1],
    [['generate', '--max-tokens', '-3', 'x'], 2],
    [['chat', '--seed', '1.5'], 1],
    [['chat', '--top-p=-1'], 1],
    [['generate', '--model', '/nowhere/at-all'], 1],
    [['serve', '--host', '0.0.0.0', '--port', '0'], 1],
    [['serve', '--port', '99999'], 1],
    [['serve', '--tool-format', 'x'], 1],
    [['serve', '--timeout', '3000000'], 1],
    [['serve', '--max-body', '0'], 1],
    [['serve', '--origin', 'https://example.org/'], 1],
    [['serve', '--api-key-file', '/dev/null'], 1],
    [['ops', '--nonsense'], 2],
    [['ops', 'tanh', 'nonsense'], 1],
    [['bench'], 1],
    [['bench', 'model', '--batch', '0'], 1],
    [['bench', 'model', '--prompt', '1e2'], 1],
    [['embed', 'x'], 1],
    [['completion', 'tcsh'], 1],
  ] as const) {
    const r = wick(...args);
    assert.equal(r.status, status, `${args.join(' ')}: ${r.stderr}`);
    assert.equal(r.stdout, '', args.join(' '));
    assert.ok(!/^\s+at |unexpected error/m.test(r.stderr), r.stderr);
    if (args[0] !== 'nonsense') assert.equal(r.stderr.trim().split('\n').length, 1, r.stderr);
  }
  assert.equal(wick('bench').stderr, 'wick bench: what is measured? wick bench model\n');
  assert.equal(
    wick('generate', '--nonsense').stderr,
    'wick generate: there is no option --nonsense; wick generate --help lists them\n',
  );
});

test('what was mistyped is answered with what was meant', () => {
  for (const [args, says] of [
    [['sevre'], /^wick: there is no command "sevre"; did you mean wick serve\? wick --help lists all commands\n$/],
    [['zzz'], /^wick: there is no command "zzz"\n\nwick: tensors/],
    [
      ['generate', '--modle', 'x'],
      /^wick generate: there is no option --modle; did you mean --model\? wick generate --/,
    ],
    [['serve', '--zzz'], /^wick serve: there is no option --zzz; wick serve --help lists them\n$/],
    [['generate', '--seed', '-1', 'x'], /^wick generate: --seed lacks its value; .* is written --seed=-1\n$/],
    [['emulate', 'none.co', '--jobs', '2'], /^wick emulate: there is no option --jobs/],
    [['inspect', 'none.gguf'], /none\.gguf: cannot be opened: ENOENT: no such file or directory\n$/],
  ] as const) {
    const { stderr, stdout } = wick(...args);
    assert.match(stderr, says);
    assert.equal(stdout, '');
  }
  assert.equal(wick('help', 'serve').stdout, wick('serve', '--help').stdout);
});

/** The options that a text names. */
const optionsIn = (text: string): string[] => [...new Set(text.match(/(?<=[\s(|["])--[a-z][a-z-]*/g) ?? [])].sort();

test('completion knows every command and its options', () => {
  for (const shell of ['bash', 'zsh', 'fish']) {
    const { status, stdout } = wick('completion', shell);
    assert.equal(status, 0);
    for (const name of names()) assert.ok(stdout.includes(name), `${shell}: ${name}`);
    assert.match(stdout, /embedding-model/);
  }
  const script = wick('completion', 'bash').stdout;
  for (const name of names()) {
    const completed = new RegExp(`^ +${name}\\) (.*) ;;$`, 'm').exec(script)?.[1] ?? 'no line';
    assert.deepEqual(optionsIn(completed), optionsIn(wick(name, '--help').stdout), `src/cli/completion.ts: ${name}`);
  }
  const tried = spawnSync(
    'bash',
    [
      '-c',
      `${script}\nCOMP_WORDS=(wick se); COMP_CWORD=1; _wick; echo "\${COMPREPLY[@]}"; COMP_WORDS=(wick serve ` +
        `--po); COMP_CWORD=2; _wick; echo "\${COMPREPLY[@]}"`,
    ],
    { encoding: 'utf8' },
  );
  assert.equal(tried.stdout, 'serve\n--port\n', tried.stderr);
});

test('a pipe that closes ends a command quietly', () => {
  const run = spawnSync('bash', ['-c', `"${process.execPath}" "${main}" ops | head -1; echo "\${PIPESTATUS[0]}"`], {
    encoding: 'utf8',
  });
  assert.equal(run.stderr, '');
  assert.equal(run.stdout.trim().split('\n').at(-1), '0');
});

test('generate --json', { skip: noModel }, () => {
  const { stdout, status } = wick(
    'generate',
    '--json',
    '--max-tokens',
    '5',
    '--seed',
    '3',
    '--device',
    'cpu',
    'ROMEO:',
  );
  assert.equal(status, 0);
  const got = JSON.parse(stdout);
  assert.deepEqual([got.prompt, got.tokens, got.reason, got.seed], ['ROMEO:', 5, 'length', 3]);
  const plain = wick('generate', '--max-tokens', '5', '--seed', '3', '--device', 'cpu', 'ROMEO:');
  assert.equal(plain.stdout, `ROMEO:${got.text}\n`);
  assert.match(plain.stderr, /next: wick chat/);
});

test('generate on the reference engine says first that it writes few tokens', () => {
  const few = (...more: string[]): { stdout: string; stderr: string } =>
    spawnSync(process.execPath, [main, 'generate', '--json', '--model', withTokenizer('llama'), ...more, 'the cat'], {
      encoding: 'utf8',
      env: { ...process.env, WICK_CPU_ISA: 'reference' },
    });
  const plain = few();
  assert.match(
    plain.stderr,
    /^20 tokens instead of 200, as the reference engine takes about a second for each; --max-/,
  );
  assert.ok((JSON.parse(plain.stdout) as { tokens: number }).tokens <= 20);
  assert.equal(few('--max-tokens', '2').stderr, '');
});

test('Ctrl-C ends a text, and what was to run after it', { skip: noModel }, async () => {
  // An engine that takes its time: what is told to end it comes before it has ended by itself.
  const run = spawn(process.execPath, [main, 'generate', '--device', 'reference', '--max-tokens', '200', 'ROMEO:']);
  let told = '';
  run.stderr.on('data', (chunk: Buffer) => (told += String(chunk)));
  run.stdout.once('data', () => run.kill('SIGINT'));
  const [status, signal] = await once(run, 'exit');
  assert.deepEqual([status, signal], [130, null], told);
  assert.doesNotMatch(told, /next: /);
});

test('a conversation by pipe: answers, commands, the same for the same seed', { skip: noModel }, () => {
  const say = (lines: string): string => {
    const r = spawnSync(
      process.execPath,
      [main, 'chat', '--device', 'cpu', '--max-tokens', '8', '--temperature', '0'],
      { input: lines, encoding: 'utf8' },
    );
    assert.equal(r.status, 0, r.stderr);
    return r.stdout;
  };
  const once = say('Who are you?\n');
  assert.ok(once.trim().length > 0);
  const twice = say(
    'Who are you?\n/retry\n/history\n/new\n/system Be brief.\n/set temperature 0.5\n/set\n/help\n/exit\nnot read\n',
  );
  assert.ok(
    twice.startsWith(once + once),
    `${JSON.stringify(twice)} does not begin with ${JSON.stringify(once)} twice`,
  );
  for (const part of ['user: Who are you?', 'a new conversation', 'temperature 0.5', '/save FILE'])
    assert.ok(twice.includes(part), part);
  assert.ok(!twice.includes('\x1b'), 'no colours where nobody watches');
  const bad = spawnSync(process.execPath, [main, 'chat', '--device', 'cpu'], {
    input: '/nonsense\n',
    encoding: 'utf8',
  });
  assert.equal(bad.status, 1);
  assert.match(bad.stderr, /no command \/nonsense/);
});

test('a conversation goes on: other answers by /retry, messages without an answer taken back', {
  skip: noModel,
}, () => {
  const input = [
    ...['/set seed 1', '/set max_tokens 8', '/set temperature 2', 'Who?', '/retry', '/retry'],
    ...['word '.repeat(400), 'two \\', 'lines', '/history', '/set seed', ''],
  ].join('\n');
  const r = spawnSync(process.execPath, [main, 'chat', '--device', 'cpu'], { input, encoding: 'utf8' });
  assert.equal(r.status, 1, 'one message was refused');
  assert.match(r.stderr, /^generate: the prompt has \d+ tokens; .* the context of 256\n$/);
  const [before, history] = r.stdout.split('user: Who?\nassistant: ');
  assert.ok(before.startsWith('seed 1\nmax_tokens 8\ntemperature 2\n'), before);
  // Greedy words would be the same three times; the last one stays in the conversation.
  const answers = before.slice('seed 1\nmax_tokens 8\ntemperature 2\n'.length);
  const last = history.slice(0, history.indexOf('user: two \nlines\n'));
  assert.ok(answers.includes(last), r.stdout);
  assert.equal(answers.split(last).length, 2, 'a seed gives each try its own answer');
  assert.ok(!r.stdout.includes('word word'), 'the message that does not fit is no part of the conversation');
  assert.ok(r.stdout.endsWith('seed (default)\n'));
});
test('a setting that no answer can have is refused, and the conversation goes on', { skip: noModel }, () => {
  const input = '/set seed 1.5\n/set temperature hot\n/set top_p 7\n/set max_tokens 3\nhi\n/set\n';
  const r = spawnSync(process.execPath, [main, 'chat', '--device', 'cpu'], { input, encoding: 'utf8' });
  assert.match(r.stderr, /^chat: seed 1\.5: .*\nchat: temperature "hot" is not a number\nchat: top_p 7: .*\n$/);
  assert.match(r.stdout, /^max_tokens 3\n[^]*\n {2}top_p \(default\)[^]* {2}seed \(default\)\n {2}max_tokens 3\n$/);
});
test('/help fits the terminal', () => {
  for (const columns of [30, 60, 80, 200]) {
    const lines = helpLines(columns);
    assert.deepEqual(
      lines.filter((line) => line.length > columns),
      [],
    );
    assert.match(lines.join(' ').replace(/\s+/g, ' '), /\/undo take back the last message and its answer/);
  }
});

test('bench model prints a table, or JSON', { skip: noModel }, () => {
  const r = wick('bench', 'model', '--device', 'cpu', '--prompt', '8', '--tokens', '4', '--batch', '1,2', '--json');
  assert.equal(r.status, 0, r.stderr);
  const { rows } = JSON.parse(r.stdout);
  assert.deepEqual(
    rows.map((row: { batch: number }) => row.batch),
    [1, 2],
  );
  for (const row of rows) for (const value of Object.values(row)) assert.ok((value as number) > 0);
});

/** A server, once it is ready: where it is, and how it is ended. */
async function serving(...options: string[]) {
  const child = spawn(process.execPath, [main, 'serve', '--port', '0', '--device', 'cpu', ...options], {
    env: { ...process.env, WICK_API_KEYS: 'key-for-tests' },
  });
  let [out, log] = ['', ''];
  child.stderr.on('data', (d) => (log += d));
  for await (const chunk of child.stdout) {
    out += chunk;
    if (out.includes('API at ')) break;
  }
  const url = /API at (\S+)/.exec(out)?.[1] ?? '';
  const headers = { 'content-type': 'application/json', authorization: 'Bearer key-for-tests' };
  const post = async <T>(path: string, body: object): Promise<T> => {
    const answer = await fetch(url + path, { method: 'POST', headers, body: JSON.stringify(body) });
    assert.equal(answer.status, 200, log);
    return (await answer.json()) as T;
  };
  const end = async (): Promise<string> => {
    child.kill('SIGTERM');
    const [status] = await once(child, 'exit');
    assert.equal(status, 0, log);
    return log;
  };
  return { post, end };
}

test('serve answers, and ends in order at a signal', { skip: noModel }, async () => {
  const { post, end } = await serving();
  const ask = { messages: [{ role: 'user', content: 'Who are you?' }], max_tokens: 6, seed: 1 };
  const { usage, model } = await post<{ usage: { completion_tokens: number }; model: string }>(
    '/chat/completions',
    ask,
  );
  assert.deepEqual([usage.completion_tokens, model], [6, 'wick-builtin']);
  const log = await end();
  assert.ok(
    log.split('\n').some((line) => line.startsWith('{') && JSON.parse(line).msg === 'ready'),
    log,
  );
});

test('serve ends at a signal while the model is still being loaded', { skip: noModel }, async () => {
  // A signal that nobody listens to ends a program too, but not the first one of a container.
  const place = createServer().listen(0, '127.0.0.1');
  await once(place, 'listening');
  const { port } = place.address() as AddressInfo;
  await new Promise((resolve) => place.close(resolve));
  const child = spawn(process.execPath, [main, 'serve', '--port', String(port), '--device', 'cpu', '--quiet']);
  const exited = once(child, 'exit');
  const loading = (): Promise<boolean> =>
    fetch(`http://127.0.0.1:${port}/health`).then(
      ({ status }) => status === 503,
      () => false,
    );
  while (!(await loading())) await new Promise((resolve) => setTimeout(resolve, 2));
  child.kill('SIGTERM');
  assert.deepEqual(await exited, [143, null]);
});

test('serve makes the vectors of its embedding model', { skip: noModel }, async () => {
  const { post, end } = await serving('--only-embeddings', '--embedding-model', builtinModel);
  const input = ['a rose', 'by any other name'];
  const { data, usage } = await post<{ data: { embedding: number[] }[]; usage: { prompt_tokens: number } }>(
    '/embeddings',
    { input },
  );
  await end();
  const model = await EmbeddingModel.load(builtinModel);
  const vectors = await model.embed(input);
  assert.deepEqual(
    data.map((d) => d.embedding),
    vectors.map((v) => [...v]),
  );
  assert.equal(
    usage.prompt_tokens,
    input.reduce((n, text) => n + model.tokenizer.encode(text).length, 0),
  );
  model.dispose();
});
test('what pages and units say of wick serve is true', () => {
  const help = wick('serve', '--help').stdout;
  const files = ['docs/serving.md', ...readdirSync(join(packageRoot, 'deploy')).map((f) => `deploy/${f}`)];
  for (const file of files)
    for (const [line] of readFileSync(join(packageRoot, file), 'utf8').matchAll(
      /^.*wick(:cuda|:rocm)? serve.*$|^ENTRYPOINT.*$|^ +command:.*$/gm,
    ))
      for (const [option] of line.matchAll(/--[a-z][a-z-]*/g))
        assert.ok(help.includes(`${option} `) || help.includes(`${option}\n`), `${file} says ${option}`);
});

test('commands and options that pages show are there', () => {
  const all = names();
  const helps = new Map(all.map((name) => [name, wick(name, '--help').stdout]));
  const pages = ['README.md', 'CONTRIBUTING.md', 'SECURITY.md'].concat(
    readdirSync(join(packageRoot, 'docs'), { recursive: true, encoding: 'utf8' })
      .filter((f) => f.endsWith('.md') && !f.startsWith('decisions'))
      .map((f) => `docs/${f}`),
  );
  let seen = 0;
  const wrong = pages.flatMap((page) => {
    const text = readFileSync(join(packageRoot, page), 'utf8');
    // Indented lines, lines of fenced blocks that begin with the command, and code in sentences.
    const code = [...text.matchAll(/^(?: {4}|\$ |mpirun |torchrun )(.*)$|`([^`\n]+)`/gm)].map((m) => m[1] ?? m[2]);
    return code.flatMap((line) =>
      [...line.replace(/ +#.*/, '').matchAll(/(?:^|npx |golden )(?:npx )?wick ([a-z]+)\b([^|]*)/g)].flatMap(
        ([, name, rest]) => {
          seen++;
          const help = helps.get(name);
          if (help === undefined) return [`${page}: wick ${name}`];
          return [...rest.matchAll(/(?<![\w-])--[a-z][a-z-]*/g)]
            .filter(([option]) => !new RegExp(`${option}(?![\\w-])`).test(help) && option !== '--help')
            .map(([option]) => `${page}: wick ${name} ${option}`);
        },
      ),
    );
  });
  assert.ok(seen > 40, `${seen} commands were found`);
  assert.deepEqual(wrong, []);
});
