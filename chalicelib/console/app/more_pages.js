// Pages, and parts of pages, that few people open first: one file for them all, loaded with the first of them.
export { Metrics as RunMetrics } from "../pages/run/metrics.js";
export { PastRun } from "../pages/run/past.js";
export { Spec as RunSpec } from "../pages/run/spec.js";
export { default as Account } from "../pages/account/index.js";
export { AllCosts, default as Costs } from "../pages/costs/index.js";
export { default as Events } from "../pages/events/index.js";
export { default as Fleets } from "../pages/fleets/index.js";
export { default as Gateways } from "../pages/gateways/index.js";
export { default as Launch } from "../pages/launch/index.js";
export { default as Offers } from "../pages/offers/index.js";
export { default as Past } from "../pages/past/index.js";
export { default as Services } from "../pages/services/index.js";
export { default as Settings } from "../pages/settings/index.js";
export { default as Users } from "../pages/users/index.js";
export { default as Volumes } from "../pages/volumes/index.js";
