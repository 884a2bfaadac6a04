// Names for the contract's types, which are generated from the OpenAPI document. Pages say `import("../types").Run`.
import type { components } from "contract";

type Schemas = components["schemas"];

export type RunSummary = Schemas["V1RunSummary"];
export type Run = Schemas["V1Run"];
export type Job = Schemas["V1Job"];
export type Service = Schemas["V1Service"];
export type Revision = Schemas["V1Revision"];
export type RunPlan = Schemas["V1RunPlan"];
export type PlannedMachines = Schemas["V1PlannedMachines"];
export type FleetSummary = Schemas["V1FleetSummary"];
export type Fleet = Schemas["V1Fleet"];
export type Instance = Schemas["V1Instance"];
export type Resources = Schemas["V1Resources"];
export type Volume = Schemas["V1Volume"];
export type GatewaySummary = Schemas["V1GatewaySummary"];
export type Gateway = Schemas["V1Gateway"];
export type Changes = Schemas["V1Changes"];
export type Offer = Schemas["V1Offer"];
export type Event = Schemas["V1Event"];
export type Costs = Schemas["V1Costs"];
export type CostSeries = Schemas["V1CostSeries"];
export type LogLine = Schemas["V1LogLine"];
export type Metrics = Schemas["V1Metrics"];
export type Project = Schemas["V1Project"];
export type Member = Schemas["V1Member"];
export type User = Schemas["V1User"];
export type Caller = Schemas["V1Caller"];
export type Secret = Schemas["V1SecretSummary"];
export type Backend = Schemas["V1Backend"];
export type Quota = Schemas["V1Quota"];
export type Past = Schemas["V1State"];
export type Mark = Schemas["V1Mark"];
export type ProblemDetails = Schemas["V1Problem"];

export type Role = Member["role"];
export type Verb = "run" | "run_all" | "fleets" | "gateways" | "costs" | "manage" | "administer" | "server" | "people";
export type Kind = "runs" | "fleets" | "instances" | "volumes" | "gateways";
export interface Items {
  runs: RunSummary;
  fleets: FleetSummary;
  instances: Instance;
  volumes: Volume;
  gateways: GatewaySummary;
}

/** What a page is given: where it is. `project` is null on pages of no project. */
export interface PageProps {
  project: string | null;
  parts: string[];
  query: Record<string, string>;
}

export interface PageEntry {
  name: string; // in the address
  title: string; // in the navigation
  icon: string;
  key?: string; // `g` and then this
  of: "project" | "server"; // what its address is about
  shown?: (session: import("./data/session.js").Session, project: string | null) => boolean;
  hidden?: boolean; // reached by links alone
  component?: (props: any) => any;
  load?: () => Promise<{ default: (props: any) => any }>;
}
