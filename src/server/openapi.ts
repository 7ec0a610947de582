// GET /openapi.json: the routes and what they take, from the same schemas that check requests.
import { z } from 'zod';
import type { Route } from './routes.js';

const errorBody = z.object({
  error: z.object({
    message: z.string(),
    type: z.string(),
    param: z.string().nullable(),
    code: z.string().nullable(),
  }),
});

/** A schema as OpenAPI 3.1 takes it: JSON Schema of what clients send. */
function jsonSchema(schema: z.ZodType): object {
  const { $schema: _, ...rest } = z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any' });
  return rest;
}
const body = (schema: z.ZodType): object => ({ content: { 'application/json': { schema: jsonSchema(schema) } } });

export function openApi(routes: readonly Route[], version: string, keys: boolean): object {
  const paths: Record<string, Record<string, object>> = {};
  for (const { method, path, summary, request, open } of routes) {
    const parameters: object[] = [];
    const named = path.replace(/:(\w+)(\{.*\})?/g, (_, name: string) => {
      parameters.push({ name, in: 'path', required: true, schema: { type: 'string' } });
      return `{${name}}`;
    });
    (paths[named] ??= {})[method] = {
      summary,
      ...(parameters.length > 0 && { parameters }),
      ...(request && { requestBody: { required: true, ...body(request) } }),
      responses: {
        200: { description: 'the answer; a stream of server-sent events where the request asks for one' },
        ...(request && { default: { description: 'an error', ...body(errorBody) } }),
      },
      ...(keys && open && { security: [] }),
    };
  }
  return {
    openapi: '3.1.0',
    info: { title: 'wick', version, description: 'A language model behind the APIs of OpenAI and Anthropic.' },
    paths,
    ...(keys && {
      components: { securitySchemes: { key: { type: 'http', scheme: 'bearer' } } },
      security: [{ key: [] }],
    }),
  };
}
