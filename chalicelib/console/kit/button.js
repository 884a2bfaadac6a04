import { classes } from "../lib/classes.js";
import { Icon } from "./icon.js";
import { html } from "./preact.js";

/**
 * A button, or a link that looks like one if it has an `href`. With an icon alone its `label` is read out.
 * @param {{children?: any, kind?: "primary" | "danger" | "plain", icon?: string, label?: string, href?: string,
 *   onClick?: (event: MouseEvent) => void, type?: string, disabled?: boolean, busy?: boolean, small?: boolean} & Record<string, any>} props
 */
export function Button({ children, kind, icon, label, href, small, busy, disabled, type = "button", ...more }) {
  const look = classes("button", kind, small && "small", !children && "bare", busy && "busy");
  const inside = html`${icon && html`<${Icon} name=${icon} />`}${children}`;
  if (href) return html`<a class=${look} href=${href} aria-label=${label} title=${label} ...${more}>${inside}</a>`;
  return html`<button type=${type} class=${look} aria-label=${label} title=${label} disabled=${disabled || busy} aria-busy=${busy} ...${more}>
    ${inside}</button>`;
}
