// The application: every request gets an id, is let in or turned away, answered by its route, and noted.
import { Hono } from 'hono';
import { anthropicError, ApiError, openaiError, toApiError } from './errors.js';
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

export function createApp(parts: ServerParts, { keys, onlyLocalNames }: AppOptions): Hono<ServerEnv> {
  const app = new Hono<ServerEnv>();
  const rates = new RateLimiter(parts.limits.requestsPerMinute);
  const routes: Route[] = [
    ...ROUTES,
    {
      method: 'get',
      path: '/openapi.json',
      summary: 'this description',
      open: true,
      handle: (c) => c.json(openApi(routes, parts.version, keys.required)),
    },
  ];

  app.use(async (c, next) => {
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
      const status = outgoing.headersSent ? outgoing.statusCode : c.res.status;
      const gone = c.var.ending.signal.aborted && !c.var.ending.timedOut;
      const route = routes.find((r) => r.path === c.req.path)?.path ?? 'other';
      parts.metrics.responded(route, gone ? 499 : status);
      parts.log.info('request', {
        id: c.var.requestId,
        method: c.req.method,
        path: c.req.path.slice(0, 200),
        status: gone ? 499 : status,
        ms: Math.round(performance.now() - begin),
        caller: c.var.caller,
        ...tally,
      });
    }
  });

  const answer = async (c: ServerContext, route: Route): Promise<Response> => {
    try {
      if (onlyLocalNames) checkHost(c.req.header('host'));
      if (!route.open) {
        c.set('caller', keys.caller(c.req.header('authorization'), c.req.header('x-api-key'), c.var.caller));
        if (parts.closing)
          throw new ApiError(503, 'the server is being shut down', { headers: { 'retry-after': '5' } });
        if (route.method === 'post') rates.check(c.var.caller);
      }
      for (const [name, value] of Object.entries(parts.corsOf(c))) c.header(name, value);
      c.header('x-request-id', c.var.requestId);
      return await route.handle(c, parts);
    } catch (error) {
      return failure(c, error, route.dialect);
    }
  };
  const failure = async (c: ServerContext, error: unknown, dialect?: Route['dialect']): Promise<Response> => {
    parts.failed(c, error);
    const known = toApiError(error);
    const body = dialect === 'anthropic' ? anthropicError(known, c.var.requestId) : openaiError(known);
    return c.json(body, known.status as 400, {
      ...known.headers,
      ...parts.corsOf(c),
      'x-request-id': c.var.requestId,
      // What is left of a body that is too large ends with its connection.
      ...(!(await discardBody(c.env, parts.limits.bodyBytes)) && { connection: 'close' }),
    });
  };

  for (const route of routes) app.on(route.method.toUpperCase(), route.path, (c) => answer(c, route));
  app.options('*', (c) => {
    const cors = parts.corsOf(c);
    return c.body(null, 204, {
      ...cors,
      ...(Object.keys(cors).length > 0 && {
        'access-control-allow-methods': 'GET, POST',
        'access-control-allow-headers': c.req.header('access-control-request-headers') ?? 'authorization, content-type',
        'access-control-max-age': '600',
      }),
    });
  });
  app.notFound((c) => {
    const known = routes.some((r) => r.path === c.req.path);
    const shown = `${c.req.method} ${c.req.path.slice(0, 100)}`;
    return failure(
      c,
      known
        ? new ApiError(405, `${shown}: another method is needed here`)
        : new ApiError(404, `there is no ${shown}; GET /openapi.json lists what there is`, { code: 'not_found' }),
    );
  });
  app.onError((error, c) => failure(c, error));
  return app;
}
