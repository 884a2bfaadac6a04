// What a call was refused for, or failed of, in words.

export class Problem extends Error {
  /** @param {{status: number, title?: string, detail?: string, code?: string, hint?: string | null, errors?: any[]}} given */
  constructor({ status, title = "The call failed", detail = title, code = "error", hint = null, errors = [] }) {
    super(detail);
    this.status = status;
    this.title = title;
    this.detail = detail;
    this.code = code;
    this.hint = hint;
    this.errors = errors;
    this.field = fieldOf(errors[0]);
  }
}

/** The place that a part of a problem names: of a body's field, or a query's parameter.
 * @param {any} part @returns {string | null} */
export const fieldOf = (part) => (part ? (part.pointer ?? part.parameter ?? part.path ?? null) : null);

/** From what the API said: a problem of `/api/v1`, or one as older clients know it.
 * @param {number} status @param {any} body */
export function problemOf(status, body) {
  if (body && typeof body === "object" && typeof body.detail === "string") return new Problem({ ...body, status });
  const first = [body?.detail].flat()[0];
  if (first?.msg) return new Problem({ status, detail: first.msg, code: first.code });
  return new Problem({ status, detail: `The server answered with status ${status}.` });
}
