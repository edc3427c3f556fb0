// Sign-in: with the link that the server printed, or with a token.

import { type FormEvent, useState } from "react";
import { call } from "../api/client";
import { Trouble } from "../parts/basics";

export function SignIn(props: { onSignedIn: () => void }) {
  const [token, setToken] = useState("");
  const [problem, setProblem] = useState<Error | null>(null);
  const expired = new URLSearchParams(location.search).has("signin");
  const signIn = async (event: FormEvent) => {
    event.preventDefault();
    try {
      await call("POST /session", { headers: { Authorization: `Bearer ${token.trim()}` } });
      if (expired) history.replaceState(null, "", "/");
      props.onSignedIn();
    } catch (error) {
      setProblem(error as Error);
    } finally {
      setToken("");
    }
  };
  return (
    <main className="sign-in">
      <h1>
        <img src="/static/icon.svg" alt="" width="30" height="30" /> Rota
      </h1>
      {expired ? (
        <p className="note-bar">
          That link was already used. The next start of the server prints a new one.
        </p>
      ) : null}
      <p>
        <code>rota up</code> prints a link that signs your browser in, once. Or paste a token: the
        first start wrote one to the file <code>token</code> in the server's data folder, and{" "}
        <code>rota tokens create --role operator</code> makes more.
      </p>
      <form onSubmit={(event) => void signIn(event)}>
        <label className="field">
          Token
          <input
            type="password"
            autoComplete="off"
            spellCheck={false}
            required
            value={token}
            onChange={(event) => setToken(event.target.value)}
          />
        </label>
        <button type="submit" className="primary">
          Sign in
        </button>
      </form>
      <Trouble error={problem} />
    </main>
  );
}
