// Writes docs/pytorch-names.md.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { packageRoot } from '../src/base/paths.js';
import { namesPage } from './pytorch-table.js';

writeFileSync(join(packageRoot, 'docs/pytorch-names.md'), namesPage());
