"""Routes that change something: each logs who, why, and the result.

Commands (unload, place, split, drain, fill, a plan) are executed by the daemon's own thread, one after the other; a
route waits for the result.

A change that is repeated under the same idempotency key gets the previous response, and is not executed twice.
Responses are kept in memory, for a day at most; a restart forgets them. An order has its id from its key and content,
and so is known again where it is in force or has ended. The header is that of draft-ietf-httpapi-idempotency-key.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec
import structlog
from anyio import from_thread
from fastapi import APIRouter, Header, Path, Query
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from lbd.api.client import NAMES, OWN
from lbd.api.problems import ProblemError, problem
from lbd.api.read import Part, last_turn
from lbd.api.shapes import (
    Applied,
    Drained,
    DrainsResponse,
    Paused,
    Released,
    Resumed,
    RolloutResponse,
    Started,
    TopicBundles,
    answer,
    answer_with,
)
from lbd.errors import LbdError, UsageError
from lbd.fields import derived
from lbd.place.placements import DEFAULT
from lbd.pulsar.paths import bounds
from lbd.split.plan import Algorithm
from lbd.store.control import (
    FAILED,
    REFUSED,
    Control,
    DrainRequest,
    FillRequest,
    Pause,
    PlaceRequest,
    PlannedMove,
    PlanRequest,
    RequestResult,
    RolloutRequest,
    SplitRequest,
    UnloadRequest,
    new_id,
)
from lbd.store.drains import Drains, DrainStatus, drains_in_force
from lbd.store.rollouts import Rollouts
from lbd.text import duration_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from lbd.api.backend import Backend
    from lbd.api.token import Caller
    from lbd.store.control import Request
    from lbd.store.proposal import Proposal

    Respond = Callable[[Request, RequestResult], object]


KEPT = 1000
KEPT_SECONDS = 86_400.0


@dataclass(frozen=True, eq=False)
class _Done:
    """A request under a key, as the digest of its content; ``response`` is None while it is carried out."""

    digest: bytes
    at: float
    response: Response | None = None


class Once:
    """Answers by their idempotency keys. ``monotonic`` is seconds that no clock can set back."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._done: OrderedDict[str, _Done] = OrderedDict()

    def answer(self, key: str | None, content: bytes, act: Callable[[], Response]) -> Response:
        """Do it, unless it was done under this key: then its answer.

        Raises :class:`ProblemError` for a key that was used for something else (422), or is being worked on (409).
        """
        if key is None:
            return act()
        digest = sha256(content).digest()
        before = self._begun(key, digest)
        if before is not None:
            return before
        try:
            response = act()
        except BaseException:
            with self._lock:
                del self._done[key]
            raise
        with self._lock:
            self._done[key] = _Done(digest, self._monotonic(), response)
        return response

    def _begun(self, key: str, digest: bytes) -> Response | None:
        with self._lock:
            self._forget()
            request = self._done.get(key)
            if request is None:
                self._done[key] = _Done(digest, self._monotonic())
                return None
        if request.digest != digest:
            raise ProblemError(422, "this idempotency key was used for another change; take a new one")
        if request.response is None:
            raise ProblemError(409, "the change of this idempotency key is under way; ask again later")
        return request.response

    def _forget(self) -> None:
        """Forget old answers, and the oldest of too many; requests under way stay."""
        oldest = self._monotonic() - KEPT_SECONDS
        done = [key for key, entry in self._done.items() if entry.response is not None]
        for number, key in enumerate(done):
            if len(done) - number >= KEPT or self._done[key].at < oldest:
                del self._done[key]


# --- who asks, and the log


def content(request: HttpRequest, body: Requester) -> bytes:
    """Bytes that two changes have in common only if they are the same."""
    return f"{request.url.path}\n{body.model_dump_json()}".encode()


def order_id(key: str | None, request: HttpRequest, body: Requester) -> str:
    """The id of an order: made of its key and content, so that another lbd knows it again, too, and a restarted one."""
    if key is None:
        return new_id()[0]
    return f"key-{sha256(key.encode() + content(request, body)).hexdigest()[:24]}"


LONGEST_PAUSE_SECONDS = 366 * 86_400.0
Key = Annotated[
    str | None,
    Header(alias="Idempotency-Key", min_length=1, max_length=200, description="asked again, done once; kept for a day"),
]


def _one_line(text: str) -> str:
    line = " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
    if text and not line:
        raise ValueError("wanted words")
    return line


Line = Annotated[str, AfterValidator(_one_line)]
"""Words in one line: they are shown on terminals and in logs."""


class Requester(BaseModel):
    """The person or program that requests a change, and the reason, for the log and later readers."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    owner: Line = Field(min_length=1, max_length=100, description="a person or program")
    reason: Line = Field("", max_length=500)


Body = TypeVar("Body", bound=Requester)


def _caller(request: HttpRequest) -> Caller | None:
    """The caller that has the token of a request; None on the socket, where the kernel names the user."""
    caller: Caller | None = getattr(request.state, "caller", None)
    return caller


def signed(request: HttpRequest, body: Body) -> Body:
    """With the name of the token, or the user that the kernel names for a local connection, as owner.

    A token without a name leaves the owner as it was sent, and so does root, who may ask for others as sudo does.
    Raises :class:`ProblemError` (403) for who may not pass limits, and would.
    """
    caller = _caller(request)
    if caller is not None and getattr(body, "override", None) is not None and not caller.may("administer"):
        raise ProblemError(403, f"{caller.name} has the role {caller.role}; override needs administer")
    name = caller.name if caller is not None else getattr(request.state, "user", "")
    return body.model_copy(update={"owner": name}) if name else body


class ChangeLog:
    """Makes changes one way: once for each key, each with its line in the log, and only where this lbd takes orders.

    Where another one does it raises :class:`~lbd.errors.NotLeaderError`.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._once = Once(time.monotonic)
        self._log = structlog.get_logger()

    def make(
        self, request: HttpRequest, key: str | None, who: Requester, change: Callable[[], tuple[str, Response]]
    ) -> Response:
        """``change`` returns its result in words, and the answer."""
        return self._once.answer(key, content(request, who), lambda: self._audited(request, who, change))

    def _audited(self, request: HttpRequest, who: Requester, change: Callable[[], tuple[str, Response]]) -> Response:
        try:
            self._backend.orders.refuse_beside_a_leader()
            result, document = change()
        except (LbdError, ProblemError) as error:
            status = error.status if isinstance(error, ProblemError) else "refused"
            self._tell(request, who, f"{status}: {error}")
            raise
        self._tell(request, who, result)
        return document

    def _tell(self, request: HttpRequest, who: Requester, result: str) -> None:
        came_from = request.client.host if request.client is not None else None
        body = who.model_dump(exclude={"owner", "reason"}, exclude_none=True)
        facts = {"by": who.owner, "why": who.reason, "asked": body, "result": result, "address": came_from}
        self._log.info("change asked for over the API", what=request.url.path, **facts)


# --- pause and resume


class PauseBody(Requester):
    """Nothing is moved until this ends."""

    for_seconds: float | None = Field(
        None, ge=1, le=LONGEST_PAUSE_SECONDS, description="it ends by itself then; null: until it is resumed"
    )


def changing(backend: Backend, changes: ChangeLog) -> APIRouter:
    """A pause, and its end."""
    router = APIRouter(prefix="/v1", tags=["changing"])

    @router.post("/pause")
    def pause(request: HttpRequest, body: PauseBody, key: Key = None) -> Response:
        """Keep lbd from moving anything, also over restarts; it goes on observing and counting.

        Moves in flight are brought to their end. A pause that was in force is replaced, and returned.
        """
        body = signed(request, body)

        def change() -> tuple[str, Response]:
            now = backend.now()
            until = now + body.for_seconds if body.for_seconds is not None else None
            name, order = order_id(key, request, body), Pause(now, until, body.reason, body.owner)
            document = Paused(*Control(backend.state_dir, backend.orders).pause(order, name), os.getpid())
            backend.board.events.tell("pause", document)
            lasts = f"for {duration_text(body.for_seconds)}" if body.for_seconds is not None else "until it is resumed"
            return f"paused {lasts}", answer(document)

        return changes.make(request, key, body, change)

    @router.post("/resume")
    def resume(request: HttpRequest, body: Requester, key: Key = None) -> Response:
        """End a pause, and the holds ``not-served`` and ``changed-hands``; ``ended`` is null without a pause."""
        body = signed(request, body)

        def change() -> tuple[str, Response]:
            control = Control(backend.state_dir, backend.orders)
            ended_pause = control.paused(backend.now())
            control.go_on(backend.now(), body.owner, body.reason)
            document = Resumed(ended_pause, os.getpid())
            backend.board.events.tell("pause", {"paused": None, "replaced": ended_pause})
            return "ended a pause" if ended_pause is not None else "nothing was paused", answer(document)

        return changes.make(request, key, body, change)

    return router


# --- commands: executed by the daemon's own thread

STATUS_OF = {2: 400, 3: 503, REFUSED: 409, FAILED: 502}
"""HTTP status by the exit code of a result; 0 is 200, any other a bug."""

LONGEST_WAIT_SECONDS = 86_400.0
Broker = Annotated[Line, Field(min_length=1, max_length=300, description="host:port, as brokers are listed")]
Bundle = Annotated[Line, Field(min_length=1, max_length=1000, description="tenant/namespace/0xLLLLLLLL_0xUUUUUUUU")]
Target = Annotated[Line, Field(min_length=1, max_length=2000, description="a bundle, topic or namespace")]
Override = Annotated[
    Line | None,
    Field(min_length=1, max_length=500, description="why limits may be passed, a pause among them; null: they hold"),
]


class CommandBody(Requester):
    """A command, and how long its result is waited for; one that was not begun by then never is."""

    timeout_seconds: float = Field(120, ge=1, le=LONGEST_WAIT_SECONDS, description="wait so long for the result")


class UnloadBody(CommandBody):
    """One unload."""

    bundle: Bundle
    destination: Broker | None = Field(None, description="null: lbd picks one that all guardrails allow")
    override: Override = None


class SplitBody(CommandBody):
    """One split, at the positions of a plan that was shown."""

    bundle: Bundle
    broker: Broker = Field(description="the owner of the bundle; where it has another one, nothing is split")
    algorithm: Algorithm
    positions: list[Annotated[int, Field(ge=0, le=0xFFFFFFFF)]] = Field(min_length=1, max_length=1000)
    override: Override = None


class PlaceBody(CommandBody):
    """Unowned bundles that are to be placed."""

    targets: list[Target] = Field(min_length=1, max_length=1000)
    strategy: Line = Field(DEFAULT, max_length=100)


class FillBody(CommandBody):
    """A broker that is to get its share."""

    broker: Broker
    override: Override = None
    respect_rest: bool = Field(
        default=False, description="bundles that were moved lately or often stay, and the others move"
    )


class DrainBody(FillBody):
    """A broker that is to own nothing."""

    for_seconds: float | None = Field(
        None,
        ge=1,
        le=LONGEST_PAUSE_SECONDS,
        description="it ends by itself then; null: after 24 hours, or as it would where it goes on",
    )


class RolloutBody(CommandBody):
    """Brokers that are to be restarted one after the other, or the end of that."""

    brokers: list[Broker] = Field([], max_length=1000, description="none: all that are active")
    executes: bool = Field(
        default=False, description="whoever asks restarts each broker as soon as the state says restart"
    )
    back_within_seconds: float = Field(
        900, ge=1, le=LONGEST_WAIT_SECONDS, description="a broker that takes longer to come back ends the rollout"
    )
    stop: bool = Field(default=False, description="end the rollout that is under way")
    restarts: Line = Field(
        "",
        max_length=300,
        description="the broker that whoever asks is about to restart: nothing is begun, and 409 unless it is due now, "
        "by the lbd that leads now, and handed over to no other claim; ask this before each restart",
    )
    claim: Line = Field("", max_length=300, description="a name of whoever restarts; empty: the Idempotency-Key")
    target: Line = Field("", max_length=300, description="id of the rollout to stop or go on with; empty: any")


class Runner:
    """Has commands executed, once for each key, and answers with their results.

    A command whose client has gone, or whose time is over, or that still waits when lbd is ``ending``, is withdrawn.
    """

    def __init__(self, backend: Backend, changes: ChangeLog, ending: threading.Event) -> None:
        self._backend, self._changes, self._ending = backend, changes, ending

    def run(
        self,
        request: HttpRequest,
        key: str | None,
        body: CommandBody,
        kind: type[Request],
        respond: Respond = lambda _, result: result,
        **others: object,
    ) -> Response:
        """Run a command of this kind, which has its fields from the signed body, and ``others`` that no body has.

        ``respond`` makes the response of the command and a result with exit code 0.
        """
        body, now = signed(request, body), self._backend.now()
        fields = {name: getattr(body, NAMES.get(name, name)) for name in kind.__struct_fields__ if name not in OWN}
        times = {"at": now, "expires_at": now + body.timeout_seconds}
        command = msgspec.convert({"id": order_id(key, request, body), **fields, **times, **others}, kind)
        return self._changes.make(request, key, body, lambda: self._result(request, command, respond))

    def _result(self, request: HttpRequest, command: Request, respond: Respond) -> tuple[str, Response]:
        """A response that is returned is kept under the key; an error that is raised is not: nothing was begun."""
        result, untouched = self._backend.ask(
            command, lambda: self._ending.is_set() or from_thread.run(request.is_disconnected)
        )
        if result is None:
            gone = not self._ending.is_set() and from_thread.run(request.is_disconnected)
            return self._unanswered(command, gone=gone, untouched=untouched)
        if result.exit_code == 0:
            return result.sentence, answer(respond(command, result))
        members = msgspec.to_builtins(result)
        if isinstance(command, PlanRequest):
            members["moves"] = members.pop("placed", [])
        status = STATUS_OF.get(result.exit_code, 500)
        if result.exit_code == FAILED or any(placed.result is not None for placed in result.placed or ()):
            return result.sentence, problem(status, result.sentence, **members)
        raise ProblemError(status, result.sentence, **members)

    def _unanswered(self, command: Request, *, gone: bool, untouched: bool) -> tuple[str, Response]:
        seconds = command.expires_at - command.at
        late = "the client has gone" if gone else f"No answer within {seconds:g} s"
        status, why = (503, "lbd is ending") if self._ending.is_set() else (504, late)
        see = "/v1/drains" if isinstance(command, DrainRequest | FillRequest) else "/v1/moves, or lbd history"
        see = "/v1/rollout" if isinstance(command, RolloutRequest) else see
        words = f"{why}: nothing was begun." if untouched else f"{why}: it is under way, see {see}."
        members = msgspec.to_builtins(RequestResult(FAILED, words, id=command.id))
        if untouched:
            raise ProblemError(status, words, **members)
        return words, problem(status, words, **members)


def commands(runner: Runner) -> APIRouter:
    """One unload, a placement, a split: each is executed to its end."""
    router = APIRouter(prefix="/v1", tags=["changing"])

    @router.post("/unload")
    def unload(request: HttpRequest, body: UnloadBody, key: Key = None) -> Response:
        """Unload a bundle to a broker, and verify that it landed there; 409 refused, 502 failed or elsewhere."""
        bounds(body.bundle)
        return runner.run(request, key, body, UnloadRequest)

    @router.post("/place")
    def place(request: HttpRequest, body: PlaceBody, key: Key = None) -> Response:
        """Place the unowned bundles of these; owned ones stay. 409: one could not be placed, 502: it is elsewhere."""
        return runner.run(request, key, body, PlaceRequest)

    @router.post("/split")
    def split(request: HttpRequest, body: SplitBody, key: Key = None) -> Response:
        """Split a bundle, and read the new boundaries back. It cannot be undone."""
        bounds(body.bundle)
        return runner.run(request, key, body, SplitRequest)

    return router


def previews(backend: Backend) -> APIRouter:
    """Routes that preview an unload or a split; they ask brokers, and change nothing."""
    router = APIRouter(prefix="/v1", tags=["reading"])

    @router.get("/bundles")
    def topic_bundles(
        topic: Annotated[str, Query(max_length=2000, description="persistent://, segment:// or topic://, full name")],
    ) -> Response:
        """The bundle of a topic. A scalable topic (topic://) has one for each active segment."""
        return answer(TopicBundles(backend.topic_bundles(topic)))

    @router.get("/unload/{tenant}/{namespace}/{bundle}")
    def unload(tenant: Part, namespace: Part, bundle: Part, destination: Broker | None = None) -> Response:
        """From where to where, and the scores before and after: the JSON of ``lbd unload BUNDLE``; 409 refused."""
        name = f"{tenant}/{namespace}/{bundle}"
        bounds(name)
        return answer(backend.show_unload(name, destination))

    @router.get("/split")
    def due() -> Response:
        """All bundles above a limit of the ``split:`` section: the JSON of ``lbd split --auto``."""
        return answer(backend.plan_due_splits())

    @router.get("/split/{tenant}/{namespace}/{bundle}")
    def one(
        tenant: Part,
        namespace: Part,
        bundle: Part,
        algorithm: Annotated[Algorithm | None, Query(description="null: split.algorithm")] = None,
        positions: Annotated[list[int], Query(max_length=1000)] = [],  # noqa: B006 - FastAPI copies it
    ) -> Response:
        """One bundle: the JSON of ``lbd split BUNDLE``."""
        name = f"{tenant}/{namespace}/{bundle}"
        bounds(name)
        return answer(backend.plan_split(name, algorithm, positions))

    return router


# --- ``/v1/drain``, ``/v1/fill`` and ``/v1/release``: plan, start, progress

Named = Annotated[str, Path(min_length=1, max_length=300, description="host:port")]


class ReleaseBody(Requester):
    """A drain that is to end."""

    broker: Broker


def draining(backend: Backend, changes: ChangeLog, runner: Runner) -> APIRouter:
    """A drain, a fill, and the end of a drain."""
    router = APIRouter(prefix="/v1", tags=["changing"])

    @router.post("/drain")
    def drain(request: HttpRequest, body: DrainBody, key: Key = None) -> Response:
        """Begin to move everything off a broker, and keep it empty; ``GET /v1/drains`` and events tell how far it is.

        Where the others cannot do without it nothing is begun (409). A drain that is in force goes on.
        """

        def begun(command: Request, result: RequestResult) -> Started:
            drain = None
            with suppress(UsageError):  # it has begun, whatever of it can be read now
                drain = Drains(backend.state_dir).in_force(backend.now()).get(body.broker)
            return Started(body.broker, result.sentence, command.at, drain, command.id)

        return runner.run(request, key, body, DrainRequest, begun)

    @router.post("/fill")
    def fill(request: HttpRequest, body: FillBody, key: Key = None) -> Response:
        """Begin to bring a broker up to the mean, by a slice of each one above it."""

        def begun(command: Request, result: RequestResult) -> Started:
            return Started(body.broker, result.sentence, command.at, None, command.id)

        return runner.run(request, key, body, FillRequest, begun)

    @router.post("/release")
    def release(request: HttpRequest, body: ReleaseBody, key: Key = None) -> Response:
        """End the drain of a broker (``released``), or its fill (``filled``). What was moved stays where it is."""
        body = signed(request, body)
        return changes.make(request, key, body, lambda: _released(backend, body.broker))

    return router


def drains(backend: Backend) -> APIRouter:
    """Routes that read: the drains in force, and the preview of a drain or a fill."""
    router = APIRouter(prefix="/v1", tags=["reading"])

    @router.get("/drains")
    def in_force() -> Response:
        """The drains in force with how far each has come, and the last fill."""
        present = drains_in_force(backend.state_dir, backend.now())
        fill = Drains(backend.state_dir).works().fill
        drains = [DrainStatus.of(*drain) for drain in present]
        return answer(DrainsResponse(drains, fill, fill.tried if fill is not None else 0))

    @router.get("/drain/{broker}")
    def show_drain(broker: Named) -> Response:
        """Whether the others can do without a broker, and where its bundles would go; brokers are asked for it."""
        return answer(backend.show_drain(broker))

    @router.get("/fill/{broker}")
    def show_fill(broker: Named) -> Response:
        """Bundles that a fill would give to a broker; brokers are asked for it."""
        return answer(backend.show_fill(broker))

    return router


def _released(backend: Backend, broker: str) -> tuple[str, Response]:
    released = Released.of(Drains(backend.state_dir, backend.orders).release_by_name(broker))
    broker = released.broker or broker
    backend.board.events.tell("drain", Drained(broker, None, released.released))
    words = f"released {broker}" if released.released is not None else f"{broker} is not drained"
    return f"ended the fill of {broker}" if released.filled is not None else words, answer(released)


# --- ``/v1/rollout``: plan, start, progress, end


def rollouts(backend: Backend, runner: Runner) -> tuple[APIRouter, APIRouter]:
    """Routes that read a rollout, and those that begin and end it."""
    reading, changing = APIRouter(prefix="/v1", tags=["reading"]), APIRouter(prefix="/v1", tags=["changing"])

    @reading.get("/rollout")
    def rollout() -> Response:
        """The rollout under way, else the last one, and how far its drain or fill is."""
        works = Drains(backend.state_dir).works()
        try:
            rollout = Rollouts(backend.state_dir).last()
        except UsageError as error:
            return answer(RolloutResponse(None, str(error), None))
        if rollout is None:
            return answer(RolloutResponse(None, "There was no rollout.", None))
        work = works.fill if rollout.phase == "fill" else works.drains.get(rollout.broker)
        return answer(RolloutResponse(rollout, rollout.summary, work if rollout.ended_at is None else None))

    @reading.get("/rollout/plan")
    def plan(broker: Annotated[list[Broker], Query(max_length=1000)] = []) -> Response:  # noqa: B006 - FastAPI copies it
        """The order of the brokers (none named: of all), and what each drain would move; every broker is asked."""
        return answer(backend.show_rollout(broker))

    @changing.post("/rollout")
    def begin(request: HttpRequest, body: RolloutBody, key: Key = None) -> Response:
        """Begin to restart brokers, the one that leads last: each is drained, and handed over in phase ``restart``.

        lbd restarts nothing itself. 409 where one of them cannot be spared, or another rollout is under way.
        """
        return runner.run(request, key, body, RolloutRequest)

    return reading, changing


# --- ``/v1/plan``: what waits for approval or a turn would start, and how exactly that plan is started

Skips = Annotated[bool, Query(description="false: without what is not moved, which may be a line for each bundle")]


def planning(backend: Backend, changes: ChangeLog, runner: Runner) -> APIRouter:
    """The plan that waits, or that of the last turn, and its moves as a command."""
    router = APIRouter(prefix="/v1")

    @router.get("/plan", tags=["reading"])
    def plan(*, skips: Skips = True) -> Response:
        """Plan that waits for approval; else moves a turn would begin if the imbalance lasts, by the last round."""
        proposal = backend.plan(last_turn(backend))
        return answer_with(proposal.content if skips else proposal.brief)

    @router.post("/plan/{name}/apply", tags=["changing"])
    def apply(
        request: HttpRequest,
        name: Annotated[str, Path(max_length=100, description="the plan's id")],
        body: CommandBody,
        key: Key = None,
    ) -> Response:
        """Begin exactly the moves of that plan, and tell how each ended. Where one of them cannot be made any more,
        nothing is begun (409), and these are named.
        """
        caller = _caller(request)
        if backend.settings.approvers > 1 and caller is not None and not caller.name:
            raise ProblemError(403, "approvers: 2 needs a name that is proven; use a token of api.tokens_file")
        proposal = backend.planned(name)
        if proposal is None:
            return changes.make(request, key, signed(request, body), lambda: _unknown(name, backend.proposal()))
        moves = [derived(PlannedMove, move) for move in proposal.unloads]
        if not moves:
            return changes.make(request, key, signed(request, body), lambda: ("nothing to move", answer(NO_MOVES)))

        def applied(_: Request, done: RequestResult) -> Applied:
            return Applied(0, done.sentence, done.placed or [])

        return runner.run(request, key, body, PlanRequest, applied, plan=name, moves=moves)

    return router


NO_MOVES = Applied(0, "The plan has no moves.", [])


def _unknown(name: str, waiting: Proposal | None) -> tuple[str, Response]:
    now = f"plan {waiting.id} waits for approval" if waiting is not None else "no plan waits for approval"
    words = f"Refused: plan {name:.100} is not known, or has expired; {now} (lbd plan)."
    raise ProblemError(404, words, **msgspec.to_builtins(RequestResult(REFUSED, words)))
