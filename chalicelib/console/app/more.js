import { script } from "../lib/script.js";

export const morePages = script(() => import("./more_pages.js"));
