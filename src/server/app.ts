// The application: every request gets an id, is let in or turned away, answered by its route, and noted.
import { Hono } from 'hono';
import { anthropicError, ApiError, isAnthropic, openaiError, toApiError } from './errors.js';
import { discardBody, Ending, requestIdOf, type ServerContext, type ServerEnv, type Tally } from './exchange.js';
import { checkHost, type Keys } from './keys.js';
import { RateLimiter } from './limits.js';
import { openApi } from './openapi.js';
import { ROUTES, type Route } from './routes.js';
import type { ServerParts } from './server-parts.js';

export interface AppOptions {
  readonly keys: Keys;
  /** Only requests that call this machine by its own names. */
  readonly onlyLocalNames: boolean;
}

/** The routes of the server as an application of Hono, to be mounted in another; `serve` listens by itself. */
export function createApp(parts: ServerParts, options: AppOptions): Hono<ServerEnv> {
  const app = new Hono<ServerEnv>();
  const routes: Route[] = [
    ...ROUTES,
    {
      method: 'get',
      path: '/openapi.json',
      summary: 'this description',
      open: true,
      handle: (c) => c.json(openApi(routes, parts.version, options.keys.required)),
    },
  ];
  const letIn = doorkeeper(parts, options);

  app.use((c, next) => accompany(c, next, parts, routes));
  for (const route of routes)
    app.on(route.method.toUpperCase(), route.path, async (c) => {
      try {
        letIn(c, route);
        for (const [name, value] of Object.entries(parts.corsOf(c))) c.header(name, value);
        for (const [name, value] of Object.entries(parts.idsOf(c))) c.header(name, value);
        return await route.handle(c, parts);
      } catch (error) {
        return failure(c, parts, error, route.dialect);
      }
    });
  app.options('*', (c) => preflight(c, parts));
  app.notFound((c) => failure(c, parts, unknownRoute(c, routes)));
  app.onError((error, c) => failure(c, parts, error));
  return app;
}

/** What every request has around it: an id, an ending, and a line in the log with what became of it. */
async function accompany(
  c: ServerContext,
  next: () => Promise<void>,
  parts: ServerParts,
  routes: readonly Route[],
): Promise<void> {
  const begin = performance.now();
  const tally: Tally = {};
  c.set('requestId', requestIdOf(c.req.header('x-request-id')));
  c.set('tally', tally);
  c.set('ending', new Ending(c.env.outgoing, parts.requestSeconds));
  c.set('caller', c.env.incoming.socket.remoteAddress ?? 'unknown');
  try {
    await next();
  } finally {
    c.var.ending.release();
    const { outgoing } = c.env;
    const gone = c.var.ending.signal.aborted && !c.var.ending.timedOut;
    const status = gone ? 499 : outgoing.headersSent ? outgoing.statusCode : c.res.status;
    const route = routes.find((r) => r.path === c.req.path)?.path ?? 'other';
    parts.metrics.responded(route, status);
    parts.log.info('request', {
      id: c.var.requestId,
      method: c.req.method,
      path: c.req.path.slice(0, 200),
      status,
      ms: Math.round(performance.now() - begin),
      caller: c.var.caller,
      ...tally,
    });
  }
}

/** Turns away, by an error, whoever may not ask: a wrong name of this machine, no key, too many requests. */
function doorkeeper(parts: ServerParts, { keys, onlyLocalNames }: AppOptions): (c: ServerContext, r: Route) => void {
  const rates = new RateLimiter(parts.limits.requestsPerMinute);
  return (c, route) => {
    if (onlyLocalNames) checkHost(c.req.header('host'));
    if (route.open) return;
    c.set('caller', keys.caller(c.req.header('authorization'), c.req.header('x-api-key'), c.var.caller));
    if (parts.closing) throw new ApiError(503, 'the server is being shut down', { headers: { 'retry-after': '5' } });
    if (route.method === 'post') rates.check(c.var.caller);
  };
}

async function failure(
  c: ServerContext,
  parts: ServerParts,
  error: unknown,
  dialect?: Route['dialect'],
): Promise<Response> {
  parts.failed(c, error);
  const known = toApiError(error);
  const body = dialect === 'anthropic' || isAnthropic(c) ? anthropicError(known, c.var.requestId) : openaiError(known);
  return c.json(body, known.status as 400, {
    ...known.headers,
    ...parts.corsOf(c),
    ...parts.idsOf(c),
    // What is left of a body that is too large ends with its connection.
    ...(!(await discardBody(c.env, parts.limits.bodyBytes)) && { connection: 'close' }),
  });
}

/** A browser asks first whether a page of another origin may call. */
function preflight(c: ServerContext, parts: ServerParts): Response {
  const cors = parts.corsOf(c);
  if (Object.keys(cors).length === 0) return c.body(null, 204, cors);
  return c.body(null, 204, {
    ...cors,
    'access-control-allow-methods': 'GET, POST',
    'access-control-allow-headers': c.req.header('access-control-request-headers') ?? 'authorization, content-type',
    'access-control-max-age': '600',
  });
}

function unknownRoute(c: ServerContext, routes: readonly Route[]): ApiError {
  const shown = `${c.req.method} ${c.req.path.slice(0, 100)}`;
  const methods = routes.filter((r) => r.path === c.req.path).map((r) => r.method.toUpperCase());
  const allow = [...new Set(methods.flatMap((m) => (m === 'GET' ? ['GET', 'HEAD'] : [m])))].join(', ');
  return methods.length > 0
    ? new ApiError(405, `${shown}: here it is ${allow}`, { headers: { allow } })
    : new ApiError(404, `there is no ${shown}; ${hint(c, routes)}`, { code: 'not_found' });
}
/** Base addresses are given with /v1 where they have none, and without where they need it. */
function hint(c: ServerContext, routes: readonly Route[]): string {
  const asked = c.req.path.replace(/\/+/g, '/').replace(/(.)\/$/, '$1');
  const meant = [asked, `/v1${asked}`, asked.replace(/^\/v1\/v1\//, '/v1/'), asked.replace(/^\/api\/v1\//, '/v1/')];
  const found = routes.find((r) => meant.includes(r.path));
  return found ? `it is ${found.method.toUpperCase()} ${found.path}` : 'GET /openapi.json lists what there is';
}
