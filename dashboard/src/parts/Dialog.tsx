// Dialog: the browser's own element, so that focus, Escape and screen readers work.

import { type ReactNode, useEffect, useRef } from "react";

export function Dialog(props: {
  title: ReactNode;
  onClose: () => void;
  children: ReactNode;
  wide?: boolean;
}) {
  const ref = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const dialog = ref.current;
    if (dialog && !dialog.open) dialog.showModal();
  }, []);
  return (
    <dialog
      ref={ref}
      className={props.wide ? "wide" : ""}
      onClose={props.onClose}
      onCancel={props.onClose}
      aria-labelledby="dialog-title"
    >
      <div className="panel-head">
        <h2 id="dialog-title">{props.title}</h2>
        <button type="button" className="quiet" aria-label="Close" onClick={props.onClose}>
          ✕
        </button>
      </div>
      {props.children}
    </dialog>
  );
}

/** The buttons of a form in a dialog: close or submit. */
export function DialogEnd(props: { onClose: () => void; children: ReactNode }) {
  return (
    <div className="dialog-acts">
      <button type="button" onClick={props.onClose}>
        Close
      </button>
      <button type="submit" className="primary">
        {props.children}
      </button>
    </div>
  );
}
