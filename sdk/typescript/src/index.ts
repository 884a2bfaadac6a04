/**
 * A client for a dstack-serverless control plane.
 *
 * `runs` has what programs do most; `api` has every call of the API, with the types of what it takes and answers.
 */

import type { Client as Typed } from "openapi-fetch";

import { Calls, type Options } from "./calls.js";
import { Runs } from "./runs.js";
import type { paths } from "./schema.js";

export { answer, type Options } from "./calls.js";
export { DstackError, NotReached, Unanswered, type Problem } from "./errors.js";
export type { Configuration, Run, RunPlan, Stage } from "./runs.js";
export type { components, paths } from "./schema.js";

export class Client {
  readonly api: Typed<paths>;
  readonly runs: Runs;

  constructor(options: Options = {}) {
    const calls = new Calls(options);
    this.api = calls.api;
    this.runs = new Runs(calls);
  }
}
