// Theme: light, dark, or the system's; stored in the browser.

const KEY = "rota.theme";

export type Theme = "auto" | "light" | "dark";

export function readTheme(): Theme {
  try {
    const kept = localStorage.getItem(KEY);
    return kept === "light" || kept === "dark" ? kept : "auto";
  } catch {
    return "auto";
  }
}

export function applyTheme(theme: Theme): void {
  if (theme === "auto") document.documentElement.removeAttribute("data-theme");
  else document.documentElement.setAttribute("data-theme", theme);
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // Without storage the theme lasts until the page is closed.
  }
}

/** Colours of the theme for a canvas, resolved by the browser. */
export function colours<K extends string>(near: Element, names: readonly K[]): Record<K, string> {
  const probe = document.createElement("i");
  near.append(probe);
  const found = {} as Record<K, string>;
  for (const name of names) {
    probe.style.color = `var(--${name})`;
    found[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return found;
}
