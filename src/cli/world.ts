// Commands that a launcher started several times: their processes share one model.
import { ArgumentError } from '../base/errors.js';
import type { Group } from '../distributed/index.js';
import { placeFromEnvironment } from '../distributed/launcher.js';
import { EXPERT_DIVISIONS, type ExpertDivision } from '../models/decoder/expert-divisions.js';

/** Which of how many processes this is. */
export const place = (): { rank: number; size: number } => placeFromEnvironment() ?? { rank: 0, size: 1 };

/** The ranks that work together, where mpirun, torchrun or another launcher started several; else undefined. */
export async function worldOf(device: string | undefined): Promise<Group | undefined> {
  if (place().size === 1) return undefined;
  // A process of its own has no use for them.
  const { init } = await import('../distributed/index.js');
  const { Device } = await import('../tensor/device.js');
  // A kind alone is this rank's own GPU of its machine.
  return init({ device: device ?? Device.best().name.replace(/^(cuda|rocm):.*/, '$1') });
}

export const EXPERTS_HELP =
  '  --experts HOW          how ranks divide a mixture: rows (of every expert) or whole (experts); ' +
  'default: rows if\n                         they divide';

/** How ranks divide mixtures, as an option says it; asked before they meet, so that each can speak for itself. */
export function expertsOf(command: string, text: string | undefined): ExpertDivision | undefined {
  if (text === undefined) return undefined;
  const how = EXPERT_DIVISIONS.find((name) => name === text);
  if (!how)
    throw new ArgumentError(
      `${command}: there is no --experts ${JSON.stringify(text)}; there are ${EXPERT_DIVISIONS.join(', ')}`,
    );
  if (place().size === 1)
    throw new ArgumentError(
      `${command}: --experts says how several ranks divide a mixture, and this process is alone; start it with ` +
        `mpirun or torchrun`,
    );
  return how;
}
