// The session: who is signed in, with which role.

import { createContext, type ReactNode, useContext } from "react";
import type { SessionView } from "./schema.gen";

export type May = "read" | "submit" | "operate" | "administer";

const MAY: Record<string, readonly May[]> = {
  admin: ["read", "submit", "operate", "administer"],
  operator: ["read", "submit", "operate"],
  submitter: ["read", "submit"],
  viewer: ["read"],
};

const Session = createContext<SessionView | null>(null);

export function SessionProvider(props: { session: SessionView; children: ReactNode }) {
  return <Session.Provider value={props.session}>{props.children}</Session.Provider>;
}

export function useSession(): SessionView {
  const session = useContext(Session);
  if (session === null) throw new Error("no session: this part belongs inside the signed-in page");
  return session;
}

export function useMay(what: May): boolean {
  const session = useContext(Session);
  return session !== null && (MAY[session.role] ?? []).includes(what);
}
