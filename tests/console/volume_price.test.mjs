import assert from "node:assert/strict";
import { test } from "node:test";

import { gigabytes, priceBefore } from "../../chalicelib/console/lib/volume_price.js";

const DATA = { name: "data", backend: "aws", region: "us-east-1", size_gb: 50, price_per_month_usd: 4, created_at: "" };
const wanted = { backend: "aws", region: "us-east-1", size: "200GB" };

test("sizes as people write them", () => {
  assert.deepEqual(["100GB", "1.5 TB", "512MB", "1t", "", "all"].map(gigabytes), [100, 1536, 0.5, 1024, null, null]);
});

test("a volume is priced like another of its place", () => {
  assert.equal(priceBefore(wanted, [DATA]), "About $16.00 a month, if it is of the kind of data: that costs $0.08 a GB in us-east-1.");
});

test("without another it is said that its price isn't known, and when it will be", () => {
  const unknown = "Its price a month isn’t known yet: aws tells it once the disk is there.";
  for (const others of [[], [{ ...DATA, region: "eu-west-1" }], [{ ...DATA, price_per_month_usd: null }], [{ ...DATA, size_gb: null }]]) assert.equal(priceBefore(wanted, others), unknown);
  assert.equal(priceBefore({ ...wanted, size: "" }, [DATA]), unknown);
});
