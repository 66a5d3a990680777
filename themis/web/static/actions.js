// Buttons that pause, resume or kill an app. Each asks first, in a dialog that the page's renewal leaves alone.
"use strict";

const ACTIONS = {
  pause: { title: "Pause", text: "Its jobs save checkpoints and stop. It gives its GPUs back, and gets others once it is resumed.", done: "It pauses as soon as its jobs have saved." },
  resume: { title: "Resume", text: "Its next attempt starts, and goes on from its checkpoints.", done: "It starts again." },
  kill: { title: "Kill", text: "It ends for good. Its checkpoints stay.", done: "It ends as soon as its jobs have stopped." },
};

function made(name, values, ...content) {
  const node = Object.assign(document.createElement(name), values);
  node.append(...content);
  return node;
}

async function ask(place, verb) {
  const { title, text } = ACTIONS[verb];
  const reason = made("input", { type: "text", maxLength: 200, id: "action-reason" });
  const heading = made("h2", { id: "action-title" }, `${title} ${place.dataset.app}?`);
  const cancel = made("button", { type: "button", autofocus: true }, "Cancel");
  const confirm = made("button", { type: "button", className: verb === "kill" ? "danger" : "" }, title);
  const dialog = made("dialog", {}, heading, made("p", {}, text));
  dialog.setAttribute("aria-labelledby", "action-title");
  if (verb !== "resume") dialog.append(made("label", { htmlFor: "action-reason" }, "Reason, kept with the app (optional)"), reason);
  dialog.append(made("div", { className: "buttons" }, cancel, confirm));
  document.body.append(dialog);
  const answer = await new Promise((resolve) => {
    dialog.onclose = () => resolve(dialog.returnValue);
    cancel.onclick = () => dialog.close("");
    confirm.onclick = () => dialog.close("yes");
    reason.onkeydown = (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault(); // Or the key would press the button that has the focus afterwards.
      dialog.close("yes");
    };
    dialog.showModal();
  });
  dialog.remove();
  return answer === "yes" ? { reason: reason.value.trim() } : null;
}

async function act(place, verb) {
  const request = await ask(place, verb);
  if (!request) return;
  const note = document.getElementById("action-note");
  note.className = "";
  note.textContent = "..";
  try {
    const answer = await fetch(place.dataset.source + verb, {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Themis-Action": place.dataset.token },
      body: JSON.stringify(request),
    });
    const document_ = await answer.json();
    note.textContent = answer.ok ? ACTIONS[verb].done : [document_.error.what, document_.error.remedy].filter(Boolean).join("; ");
    note.className = answer.ok ? "" : "bad";
  } catch {
    note.textContent = "There was no answer. Nothing may have changed: look at the state.";
    note.className = "bad";
  }
  document.dispatchEvent(new Event("themis:changed"));
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-verb]");
  if (button) act(button.closest("[data-token]"), button.dataset.verb);
});
