/** Calls of the API, each with its types: made from the API's own description. */

import createClient, { type Client as Typed } from "openapi-fetch";

import { DstackError, errorOf } from "./errors.js";
import { KEY, patient, type Patience } from "./retries.js";
import type { paths } from "./schema.js";

const VERSION = "0.22.5"; // of the protocol

export interface Options extends Partial<Patience> {
  /** Else `DSTACK_SERVER_URL`. */
  url?: string;
  /** Else `DSTACK_TOKEN`. */
  token?: string;
  /** Else `DSTACK_PROJECT`. Calls of `api` name theirs. */
  project?: string;
  /** Milliseconds since some moment. */
  now?: () => number;
}

export class Calls {
  readonly api: Typed<paths>;
  private readonly named: string | undefined;
  readonly sleep: (milliseconds: number) => Promise<void>;
  readonly now: () => number;

  constructor(options: Options) {
    const env = process.env;
    const url = options.url ?? required("DSTACK_SERVER_URL", env.DSTACK_SERVER_URL);
    const token = options.token ?? required("DSTACK_TOKEN", env.DSTACK_TOKEN);
    this.named = options.project ?? env.DSTACK_PROJECT;
    this.sleep = options.sleep ?? ((milliseconds) => new Promise((done) => setTimeout(done, milliseconds)));
    this.now = options.now ?? (() => performance.now());
    const { retries = 4, timeout = 60_000, random = Math.random } = options;
    const fetch = patient({ retries, timeout, random, sleep: this.sleep, fetch: options.fetch ?? globalThis.fetch });
    const headers = { Authorization: `Bearer ${token}`, "X-API-VERSION": VERSION };
    this.api = createClient<paths>({ baseUrl: url.replace(/\/+$/, ""), headers, fetch, redirect: "manual" });
    this.api.use({
      onRequest: ({ request }) => keyed(request),
      onResponse: ({ request, response, options }) => check(request, response, options.parseAs),
    });
  }

  get project(): string {
    return required("DSTACK_PROJECT", this.named);
  }
}

/** The answer to a call of `api`; throws a DstackError if it was refused. */
export function answer<T>(call: Promise<Answered<T>>): Promise<T> {
  return answerAs<T>(call);
}

interface Answered<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

/** The answer to a call, of this type; throws a DstackError if it was refused. */
export async function answerAs<T>(call: Promise<Answered<unknown>>): Promise<T> {
  const { data, error, response } = await call;
  if (!response.ok) {
    throw errorOf(response.status, error);
  }
  return data as T;
}

/** The server recognises a write of a resource by its key when it comes again. */
function keyed(request: Request): Request {
  if (request.method !== "GET" && request.url.includes("/api/v1/") && !request.headers.has(KEY)) {
    request.headers.set(KEY, crypto.randomUUID());
  }
  return request;
}

/** Throws a DstackError if the response can't be one of a control plane. */
function check(request: Request, response: Response, parseAs: string): undefined {
  const { origin } = new URL(request.url);
  const { status, headers } = response;
  if (status >= 300 && status < 400 && status !== 304) {
    const location = headers.get("Location");
    throw new DstackError(`The server at ${origin} redirected the request (HTTP ${status}) instead of answering it.`, {
      status,
      hint: `${location ? `It points to ${location}. ` : ""}Is the URL right, for instance its http or https?`,
    });
  }
  if (response.ok && response.body && parseAs === "json" && !headers.get("Content-Type")?.includes("json")) {
    throw new DstackError(`The program at ${origin} is not a control plane: its response is not JSON.`, {
      status,
      hint: "Is the URL right?",
    });
  }
}

function required(name: string, value: string | undefined): string {
  if (!value) {
    throw new DstackError(`${name} is not set.`, { hint: "Set it, or name it to the client." });
  }
  return value;
}
