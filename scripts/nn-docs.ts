// Writes docs/nn.md from the table of candle-nn's names: node dist/scripts/nn-docs.js
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { namesMarkdown } from '../src/nn/names.js';
import { packageRoot } from '../src/base/paths.js';

writeFileSync(join(packageRoot, 'docs', 'nn.md'), namesMarkdown());
