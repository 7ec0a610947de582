// The report as one page.
import type { Report } from './report.js';
export const reportPage = (report: Report): string => JSON.stringify(report);
