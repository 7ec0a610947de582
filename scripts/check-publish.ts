// Runs before `npm publish`: a package on a registry must say where its source and its issues are.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { packageRoot } from '../src/base/paths.js';

/** Fields that a registry shows as links. */
export const ADDRESSES = ['repository', 'homepage', 'bugs'] as const;

/** Those of them that a package.json does not fill in. */
export const missingAddresses = (manifest: Readonly<Record<string, unknown>>): string[] =>
  ADDRESSES.filter((field) => {
    const value = manifest[field];
    const url = typeof value === 'object' && value !== null ? (value as { url?: unknown }).url : value;
    return typeof url !== 'string' || url === '';
  });

if (process.argv[1]?.endsWith('check-publish.js')) {
  const manifest = JSON.parse(readFileSync(join(packageRoot, 'package.json'), 'utf8')) as Record<string, unknown>;
  const missing = missingAddresses(manifest);
  if (missing.length > 0) {
    console.error(`package.json lacks ${missing.join(', ')}: fill in the public addresses before publishing`);
    process.exitCode = 1;
  }
}
