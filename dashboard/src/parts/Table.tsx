// Table with keyboard control: j and k move, Enter opens, x selects.

import { type KeyboardEvent, type ReactNode, useRef } from "react";
import { go } from "../lib/router";

export interface Column<T> {
  head: ReactNode;
  cell: (item: T) => ReactNode;
  /** Numbers are right-aligned; minor columns are hidden first on a narrow screen. */
  kind?: "number" | "minor" | "minor number" | "wide";
}

export interface Selection {
  has: (id: string) => boolean;
  toggle: (id: string) => void;
  toggleAll: () => void;
  all: boolean;
  some: boolean;
}

export function Table<T>(props: {
  label: string;
  columns: readonly Column<T>[];
  items: readonly T[];
  id: (item: T) => string;
  to?: (item: T) => string;
  selection?: Selection | undefined;
  now?: string | undefined;
}) {
  const { columns, items, id, to, selection } = props;
  const body = useRef<HTMLTableSectionElement>(null);

  const step = (from: Element, by: number) => {
    const rows = [...(body.current?.rows ?? [])];
    const at = rows.indexOf(from.closest("tr") as HTMLTableRowElement);
    rows[Math.min(rows.length - 1, Math.max(0, at + by))]?.focus();
  };
  const press = (event: KeyboardEvent<HTMLTableRowElement>, item: T) => {
    if (event.metaKey || event.ctrlKey || event.altKey) return;
    const own = event.target === event.currentTarget;
    if (event.key === "j" || (own && event.key === "ArrowDown")) step(event.currentTarget, 1);
    else if (event.key === "k" || (own && event.key === "ArrowUp")) step(event.currentTarget, -1);
    else if (event.key === "x" && selection) selection.toggle(id(item));
    else if (own && event.key === "Enter" && to) go(to(item));
    else return;
    event.preventDefault();
  };
  return (
    <div className="table-wrap">
      <table>
        <caption className="hidden">{props.label}</caption>
        <thead>
          <tr>
            {selection ? (
              <th className="tick">
                <input
                  type="checkbox"
                  aria-label="Select all shown"
                  checked={selection.all}
                  ref={(box) => {
                    if (box) box.indeterminate = selection.some && !selection.all;
                  }}
                  onChange={selection.toggleAll}
                />
              </th>
            ) : null}
            {columns.map((column, at) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: columns never change their order
              <th key={at} className={column.kind} scope="col">
                {column.head}
              </th>
            ))}
          </tr>
        </thead>
        <tbody ref={body}>
          {items.map((item) => (
            <tr
              key={id(item)}
              tabIndex={0}
              data-id={id(item)}
              className={selection?.has(id(item)) ? "selected" : ""}
              onKeyDown={(event) => press(event, item)}
            >
              {selection ? (
                <td className="tick">
                  <input
                    type="checkbox"
                    aria-label={`Select ${id(item)}`}
                    checked={selection.has(id(item))}
                    onChange={() => selection.toggle(id(item))}
                  />
                </td>
              ) : null}
              {columns.map((column, at) => (
                // biome-ignore lint/suspicious/noArrayIndexKey: columns never change their order
                <td key={at} className={column.kind}>
                  {column.cell(item)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
