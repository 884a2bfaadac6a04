/**
 * A `fetch` that sends a request again where that can do no harm: no connection was made; or the answer was lost, or
 * says that the server is busy, and the request only reads or has an `Idempotency-Key`.
 */

import { Unanswered } from "./errors.js";

export const KEY = "Idempotency-Key";
/** Last parts of the paths of calls that change nothing. */
const READS = /\/(get|list|poll|check|config_info)[^/]*$/;
const UNSENT = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH", "UND_ERR_CONNECT_TIMEOUT"]);
const PASSING = new Set([429, 502, 503, 504]);
const FIRST_PAUSE = 200; // milliseconds
const LONGEST_PAUSE = 5000;
const LONGEST_ASKED = 30_000;

export interface Patience {
  /** How often a request is sent again. */
  retries: number;
  /** Milliseconds that an answer may take. */
  timeout: number;
  fetch: (request: Request) => Promise<Response>;
  sleep: (milliseconds: number) => Promise<void>;
  random: () => number;
}

export function patient({ retries, timeout, fetch, sleep, random }: Patience): (request: Request) => Promise<Response> {
  return async (request) => {
    const repeatable = mayRepeat(request);
    for (let attempt = 0; ; attempt++) {
      const last = attempt >= retries;
      let asked = 0;
      try {
        const signal = AbortSignal.any([request.signal, AbortSignal.timeout(timeout)]);
        const response = await read(await fetch(new Request(request.clone(), { signal })));
        if (last || !repeatable || !PASSING.has(response.status)) {
          return response;
        }
        asked = Math.min(1000 * (Number(response.headers.get("Retry-After")) || 0), LONGEST_ASKED);
      } catch (error) {
        request.signal.throwIfAborted();
        const sent = !UNSENT.has(codeOf(error));
        if (last || (sent && !repeatable)) {
          throw unanswered(request, error, sent);
        }
      }
      // Between half of a pause and all of it, so that those who failed together don't come back together.
      const pause = (Math.min(FIRST_PAUSE * 2 ** attempt, LONGEST_PAUSE) * (1 + random())) / 2;
      await sleep(Math.max(pause, asked));
      request.signal.throwIfAborted();
    }
  };
}

/** With its whole body, so that one that breaks off is noticed while the request can be sent again. */
async function read(response: Response): Promise<Response> {
  const bytes = await response.arrayBuffer();
  return new Response(bytes.byteLength ? bytes : null, response);
}

function mayRepeat(request: Request): boolean {
  const reads = request.method === "GET" || (request.method === "POST" && READS.test(new URL(request.url).pathname));
  return reads || request.headers.has(KEY);
}

function unanswered(request: Request, error: unknown, sent: boolean): Unanswered {
  const { origin } = new URL(request.url);
  const why = codeOf(error) || (error instanceof Error ? error.message : String(error));
  return sent
    ? new Unanswered(`The connection to ${origin} was lost before the response arrived (${why}).`, sent)
    : new Unanswered(`No server answers at ${origin} (${why}).`, sent);
}

/** The system's name of what went wrong: `fetch` has it in the cause of its error. */
function codeOf(error: unknown): string {
  const cause = error instanceof Error ? (error.cause as { code?: unknown } | undefined) : undefined;
  return typeof cause?.code === "string" ? cause.code : "";
}
