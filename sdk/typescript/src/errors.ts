/** What a refusal becomes: an error with its code, its hint, and the places that it is about. */

/** One thing that is wrong with what was sent. */
export interface Problem {
  /** Dotted: `resources.gpu.count`; or the name of a parameter of the query. */
  readonly path: string;
  readonly message: string;
}

/** The control plane refused a call, or failed. */
export class DstackError extends Error {
  override name = "DstackError";
  /** For programs: `resource_not_exists`, `resource_exists`, … */
  readonly code: string;
  /** Of HTTP; 0 if there was no answer. */
  readonly status: number;
  /** What to do about it; empty where the message says so. */
  readonly hint: string;
  readonly problems: readonly Problem[];

  constructor(message: string, about: { code?: string; status?: number; hint?: string; problems?: Problem[] } = {}) {
    super(message);
    this.code = about.code ?? "error";
    this.status = about.status ?? 0;
    this.hint = about.hint ?? "";
    this.problems = about.problems ?? [];
  }

  get notFound(): boolean {
    return this.code === "resource_not_exists" || this.code === "not-found";
  }

  get alreadyExists(): boolean {
    return this.code === "resource_exists" || this.code === "already-exists";
  }
}

/** There was no answer. `sent`: the request may have been carried out. */
export class Unanswered extends DstackError {
  override name = "Unanswered";
  readonly sent: boolean;

  constructor(message: string, sent: boolean) {
    super(message, { hint: sent ? "Look whether it was carried out before you repeat it." : "Is the server running?" });
    this.sent = sent;
  }
}

/** The run ended before it got where it was waited for, or that took too long. */
export class NotReached extends DstackError {
  override name = "NotReached";
}

/** Of a response of 400 or more; `body` is its JSON, or its text. */
export function errorOf(status: number, body: unknown): DstackError {
  const answer = isObject(body) ? body : {};
  if (typeof answer.title === "string") {
    return ofProblem(status, answer);
  }
  const detail = answer.detail;
  const first = Array.isArray(detail) ? detail[0] : detail;
  const entry = isObject(first) ? first : {};
  const message = String(entry.msg ?? (typeof detail === "string" ? detail : `The server answered with HTTP ${status}.`));
  return new DstackError(message, { status, code: String(entry.code ?? "error"), problems: placesIn(message, entry.fields) });
}

/** Problem details, as in RFC 9457. */
function ofProblem(status: number, answer: Record<string, unknown>): DstackError {
  const parts = Array.isArray(answer.errors) ? answer.errors.filter(isObject) : [];
  const problems = parts.map((part) => ({
    path: String(part.pointer ?? "").split("/").slice(1).join(".") || String(part.parameter ?? ""),
    message: String(part.detail ?? ""),
  }));
  const about = { status, code: String(answer.code ?? "error"), hint: String(answer.hint ?? ""), problems };
  return new DstackError(String(answer.detail ?? answer.title), about);
}

/** Each line of the message is about one field. */
function placesIn(message: string, fields: unknown): Problem[] {
  const lines = message.split("\n");
  if (!Array.isArray(fields) || fields.length !== lines.length) {
    return [];
  }
  return lines.map((line, place) => {
    const path = String(fields[place]);
    return { path, message: path && line.startsWith(`${path}: `) ? line.slice(path.length + 2) : line };
  });
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
