// A run in few words.

/** @typedef {import("../../types").Job} Job */

/** Where its jobs are: "H100×8 · aws eu-west-1", or how many places there are. @param {Job[]} jobs */
export function placeText(jobs) {
  const places = jobs.flatMap((job) => (job.instance ? [where(job.instance)] : []));
  const kinds = [...new Set(places)];
  if (kinds.length === 0) return "";
  const count = places.length > 1 ? `${places.length} × ` : "";
  return kinds.length === 1 ? `${count}${kinds[0]}` : `${places.length} machines of ${kinds.length} kinds`;
}

/** @param {NonNullable<Job["instance"]>} machine */
export const where = ({ name, type, backend, region, spot }) => (backend === "remote" ? `machine ${name}` : `${type} · ${backend} ${region}${spot ? " · spot" : ""}`);

/** The job that a page shows first: one that doesn't do well, or else the first. @param {Job[]} jobs */
export const leadJob = (jobs) => jobs.find((job) => job.status === "failed" || job.status === "aborted") ?? jobs[0];
