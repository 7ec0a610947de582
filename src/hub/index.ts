// Models by name: a folder or file stays what it is, `owner/name` is fetched from the Hugging Face hub or taken from
// its cache.
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { env } from '../base/environment.js';
import { ArgumentError, UnsupportedError } from '../base/errors.js';
import { cacheFolder, RepoCache } from './cache.js';
import { download, reason, refusal, type RemoteFile } from './download.js';

export { cacheFolder } from './cache.js';

/** How far the download of a file is. */
export interface HubProgress {
  /** The file's name in its repository. */
  readonly file: string;
  /** Bytes of all files that are there, and that there will be. */
  readonly done: number;
  /** Bytes of the whole file. */
  readonly total: number;
}
/** How a model is found by name: revision, cache and token of the Hugging Face hub. */
export interface HubOptions {
  /** A branch, tag or commit; default 'main', or what follows '@' in the name. */
  readonly revision?: string;
  /** Called with how far the download has come. */
  readonly onDownload?: (progress: HubProgress) => void;
  /** Ends downloads; files that are whole stay in the cache. */
  readonly signal?: AbortSignal;
}

/** owner/name, with @revision and :file.gguf where wanted. */
const NAME = /^([\w.-]+\/[\w.-]+?)(?:@([\w./-]+))?(?::([\w./-]+\.gguf))?$/;

/** Weights of other programs, and what is no part of a model. */
const LEFT_OUT =
  /\.(bin|pt|pth|ckpt|h5|msgpack|ot|onnx|onnx_data|tflite|mlmodel|pb|gguf|md|png|jpe?g|gif|svg|pdf|ipynb|zip)$|^\.|^(onnx|openvino|original|coreml|runs|logs|assets)\//;

/** Of the model itself, or of a part that sentence-transformers keeps in a folder of its own. */
const TORCH_WEIGHTS = /^(\d+_\w+\/)?pytorch_model(-\d{5}-of-\d{5})?\.bin$/;

interface Listing {
  readonly commit: string;
  readonly files: readonly RemoteFile[];
}

async function list(repo: string, revision: string, o: HubOptions): Promise<Listing> {
  const url = `${endpoint()}/api/models/${repo}/revision/${encodeURIComponent(revision)}?blobs=true`;
  const answer = await fetch(url, { headers: headers(), ...(o.signal && { signal: o.signal }) });
  if (!answer.ok) throw refusal(answer.status, `${repo}@${revision}`);
  const { sha, siblings } = (await answer.json()) as {
    sha?: string;
    siblings?: {
      rfilename: string;
      size?: number;
      blobId?: string;
      lfs?: { sha256?: string; oid?: string; size: number };
    }[];
  };
  if (!sha || !/^[\w.-]+$/.test(sha) || !Array.isArray(siblings))
    throw new UnsupportedError(`hub: ${url} does not answer with a list of files`);
  const files = siblings.map((s): RemoteFile => {
    const checksum = s.lfs?.sha256 ?? s.lfs?.oid ?? s.blobId ?? '';
    const size = s.lfs?.size ?? s.size;
    if (!/^([0-9a-f]{40}|[0-9a-f]{64})$/.test(checksum) || size === undefined)
      throw new UnsupportedError(`hub: ${repo}: ${s.rfilename} is listed without a size and a checksum`);
    return { name: s.rfilename, size, checksum };
  });
  return { commit: sha, files };
}
const endpoint = (): string => (env('HF_ENDPOINT') || 'https://huggingface.co').replace(/\/+$/, '');
const headers = (): Record<string, string> => {
  const token = env('HF_TOKEN');
  return { 'user-agent': 'wick', ...(token && { authorization: `Bearer ${token}` }) };
};

/**
 * What a model needs: configurations, tokenizers and weights, or the one GGUF file (with its shards) that was
 * named.
 */
function needed(files: readonly RemoteFile[], gguf: string | undefined): RemoteFile[] {
  if (gguf === undefined) {
    // PyTorch's own files serve where a folder has no safetensors.
    const safe = new Set(files.filter((f) => f.name.endsWith('.safetensors')).map((f) => dirname(f.name)));
    const kept = files.filter(
      (f) => !LEFT_OUT.test(f.name) || (TORCH_WEIGHTS.test(f.name) && !safe.has(dirname(f.name))),
    );
    // Some keep a second copy of all weights in one file beside the shards.
    const sharded = kept.some((f) => f.name === 'model.safetensors.index.json');
    return sharded ? kept.filter((f) => f.name !== 'consolidated.safetensors' && f.name !== 'model.safetensors') : kept;
  }
  const shards = gguf.replace(/-\d{5}-of-(\d{5})\.gguf$/, '-*-of-$1.gguf').split('*');
  const kept = files.filter((f) =>
    shards.length === 1 ? f.name === gguf : f.name.startsWith(shards[0]) && f.name.endsWith(shards[1]),
  );
  if (kept.length === 0) {
    const there = files.map((f) => f.name).filter((n) => n.endsWith('.gguf'));
    throw new ArgumentError(`hub: there is no ${gguf}; there are ${there.join(', ') || 'no GGUF files'}`);
  }
  return kept;
}

/** Fetches what is missing of a repository; answers the folder of its snapshot. */
async function fetchSnapshot(
  repo: string,
  revision: string,
  gguf: string | undefined,
  cache: RepoCache,
  o: HubOptions,
): Promise<string> {
  const { commit, files } = await list(repo, revision, o);
  const wanted = needed(files, gguf);
  const total = wanted.reduce((n, f) => n + f.size, 0);
  let done = 0;
  for (const file of wanted) {
    const before = done;
    const blob = cache.blob(file.checksum);
    if (!existsSync(blob))
      await download(
        `${endpoint()}/${repo}/resolve/${commit}/${file.name.split('/').map(encodeURIComponent).join('/')}`,
        blob,
        file,
        {
          headers: headers(),
          onBytes: (n) => o.onDownload?.({ file: file.name, done: before + n, total }),
          ...(o.signal && { signal: o.signal }),
        },
      );
    cache.link(commit, file.name, file.checksum);
    done = before + file.size;
    o.onDownload?.({ file: file.name, done, total });
  }
  cache.remember(commit);
  return join(cache.folder, 'snapshots', commit);
}

/**
 * The path of a model: a folder or file that is there, or what `owner/name[@revision][:file.gguf]` is on the hub or in
 * its cache.
 */
export async function modelPath(name: string, options: HubOptions = {}): Promise<string> {
  if (existsSync(name)) return name;
  const match = NAME.exec(name);
  if (!match)
    throw new ArgumentError(
      `model: ${JSON.stringify(name)} is not there, and is not a name of the hub (owner/name) either`,
    );
  const [, repo, at, gguf] = match;
  const revision = options.revision ?? at ?? 'main';
  const cache = new RepoCache({ repo, revision });
  const inside = (folder: string): string => (gguf === undefined ? folder : join(folder, gguf));
  const cached = (): string | undefined => {
    const folder = cache.snapshot();
    return folder !== undefined && existsSync(inside(folder)) ? inside(folder) : undefined;
  };
  const offline = ['1', 'true', 'yes', 'on'].includes((env('HF_HUB_OFFLINE') ?? '').toLowerCase());
  if (offline) {
    const path = cached();
    if (path) return path;
    throw new UnsupportedError(
      `hub: ${repo}@${revision} is not in the cache ${cacheFolder()}, and HF_HUB_OFFLINE forbids asking the hub`,
    );
  }
  try {
    return inside(await fetchSnapshot(repo, revision, gguf, cache, options));
  } catch (error) {
    // The hub out of reach does no harm where the model is there already; what it refuses is.
    if (!(error instanceof TypeError)) throw error;
    const path = cached();
    if (path) return path;
    throw new UnsupportedError(
      `hub: ${repo} is neither a folder here nor in the cache ${cacheFolder()}, and ${endpoint()} cannot be reached ` +
        `(${reason(error)})`,
      { cause: error },
    );
  }
}
