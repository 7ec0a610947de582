// How ranks divide mixtures of experts.

/** All ways to divide mixtures. */
export const EXPERT_DIVISIONS = ['rows', 'whole'] as const;
/** How mixtures are divided: some rows of every expert, or some experts as a whole. */
export type ExpertDivision = (typeof EXPERT_DIVISIONS)[number];
