// Where the model that comes with the package lies: commands know it before they read how models run.
import { join } from 'node:path';
import { packageRoot } from '../base/paths.js';

/** The folder of the model that comes with the package. */
export const builtinModel = join(packageRoot, 'models/builtin');
