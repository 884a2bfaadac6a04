import { useCollection } from "../data/live.js";
import { useSession } from "../data/session.js";
import { titleMark } from "../kit/page.js";
import { useEffect } from "../kit/preact.js";
import { clock } from "../kit/time.js";
import { iconOf, tabStateOf } from "../lib/tab_state.js";

const icon = /** @type {HTMLLinkElement} */ (document.querySelector("link[rel=icon]"));
const PLAIN = icon.href;

/** Keeps the tab's title and icon true. @param {{project: string | null, open: string | null}} props `open`: a run's name */
export function TabState({ project, open }) {
  const { items } = useCollection("runs", project);
  const { user } = useSession(project);
  useEffect(() => {
    const { mark, kind } = tabStateOf(items, open, { me: user.name, now: clock.get() });
    titleMark.set(mark);
    const href = iconOf(PLAIN, kind);
    if (icon.href !== href) icon.href = href;
  }, [items, open, user.name]);
  useEffect(() => () => { // whoever comes next sees nothing of it
    titleMark.set("");
    icon.href = PLAIN;
  }, []);
  return null;
}
