from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Mode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MODE_UNSPECIFIED: _ClassVar[Mode]
    MODE_TRAIN: _ClassVar[Mode]
    MODE_EVAL: _ClassVar[Mode]

class RowStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROW_STATUS_UNSPECIFIED: _ClassVar[RowStatus]
    ROW_STATUS_OK: _ClassVar[RowStatus]
    ROW_STATUS_ERROR: _ClassVar[RowStatus]
    ROW_STATUS_INVALID: _ClassVar[RowStatus]
    ROW_STATUS_TIMEOUT: _ClassVar[RowStatus]
    ROW_STATUS_CRASHED: _ClassVar[RowStatus]
    ROW_STATUS_OOM: _ClassVar[RowStatus]
MODE_UNSPECIFIED: Mode
MODE_TRAIN: Mode
MODE_EVAL: Mode
ROW_STATUS_UNSPECIFIED: RowStatus
ROW_STATUS_OK: RowStatus
ROW_STATUS_ERROR: RowStatus
ROW_STATUS_INVALID: RowStatus
ROW_STATUS_TIMEOUT: RowStatus
ROW_STATUS_CRASHED: RowStatus
ROW_STATUS_OOM: RowStatus

class RolloutBatch(_message.Message):
    __slots__ = ("completion_ids", "completion_lengths", "prompts", "prompt_ids", "prompt_lengths", "completion_prefixes", "columns", "row_ids", "group_ids", "end_token_ids", "pad_token_id", "num_generations")
    COMPLETION_IDS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_LENGTHS_FIELD_NUMBER: _ClassVar[int]
    PROMPTS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_IDS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LENGTHS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_PREFIXES_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    ROW_IDS_FIELD_NUMBER: _ClassVar[int]
    GROUP_IDS_FIELD_NUMBER: _ClassVar[int]
    END_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    PAD_TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    NUM_GENERATIONS_FIELD_NUMBER: _ClassVar[int]
    completion_ids: bytes
    completion_lengths: _containers.RepeatedScalarFieldContainer[int]
    prompts: _containers.RepeatedScalarFieldContainer[str]
    prompt_ids: bytes
    prompt_lengths: _containers.RepeatedScalarFieldContainer[int]
    completion_prefixes: _containers.RepeatedScalarFieldContainer[str]
    columns: _containers.RepeatedCompositeFieldContainer[Column]
    row_ids: _containers.RepeatedScalarFieldContainer[int]
    group_ids: _containers.RepeatedScalarFieldContainer[int]
    end_token_ids: _containers.RepeatedScalarFieldContainer[int]
    pad_token_id: int
    num_generations: int
    def __init__(self, completion_ids: _Optional[bytes] = ..., completion_lengths: _Optional[_Iterable[int]] = ..., prompts: _Optional[_Iterable[str]] = ..., prompt_ids: _Optional[bytes] = ..., prompt_lengths: _Optional[_Iterable[int]] = ..., completion_prefixes: _Optional[_Iterable[str]] = ..., columns: _Optional[_Iterable[_Union[Column, _Mapping]]] = ..., row_ids: _Optional[_Iterable[int]] = ..., group_ids: _Optional[_Iterable[int]] = ..., end_token_ids: _Optional[_Iterable[int]] = ..., pad_token_id: _Optional[int] = ..., num_generations: _Optional[int] = ...) -> None: ...

class Column(_message.Message):
    __slots__ = ("name", "string_values", "int64_values", "double_values", "bool_values", "json_values")
    NAME_FIELD_NUMBER: _ClassVar[int]
    STRING_VALUES_FIELD_NUMBER: _ClassVar[int]
    INT64_VALUES_FIELD_NUMBER: _ClassVar[int]
    DOUBLE_VALUES_FIELD_NUMBER: _ClassVar[int]
    BOOL_VALUES_FIELD_NUMBER: _ClassVar[int]
    JSON_VALUES_FIELD_NUMBER: _ClassVar[int]
    name: str
    string_values: StringValues
    int64_values: Int64Values
    double_values: DoubleValues
    bool_values: BoolValues
    json_values: StringValues
    def __init__(self, name: _Optional[str] = ..., string_values: _Optional[_Union[StringValues, _Mapping]] = ..., int64_values: _Optional[_Union[Int64Values, _Mapping]] = ..., double_values: _Optional[_Union[DoubleValues, _Mapping]] = ..., bool_values: _Optional[_Union[BoolValues, _Mapping]] = ..., json_values: _Optional[_Union[StringValues, _Mapping]] = ...) -> None: ...

class StringValues(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, values: _Optional[_Iterable[str]] = ...) -> None: ...

class Int64Values(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, values: _Optional[_Iterable[int]] = ...) -> None: ...

class DoubleValues(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, values: _Optional[_Iterable[float]] = ...) -> None: ...

class BoolValues(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[bool]
    def __init__(self, values: _Optional[_Iterable[bool]] = ...) -> None: ...

class RewardBatch(_message.Message):
    __slots__ = ("reward_fns", "rewards", "totals", "statuses", "errors", "extra_columns", "timings", "exact_rewards", "exact_totals")
    REWARD_FNS_FIELD_NUMBER: _ClassVar[int]
    REWARDS_FIELD_NUMBER: _ClassVar[int]
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    STATUSES_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    EXTRA_COLUMNS_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    EXACT_REWARDS_FIELD_NUMBER: _ClassVar[int]
    EXACT_TOTALS_FIELD_NUMBER: _ClassVar[int]
    reward_fns: _containers.RepeatedScalarFieldContainer[str]
    rewards: bytes
    totals: bytes
    statuses: _containers.RepeatedScalarFieldContainer[RowStatus]
    errors: _containers.RepeatedCompositeFieldContainer[ScoringError]
    extra_columns: _containers.RepeatedCompositeFieldContainer[ExtraColumn]
    timings: Timings
    exact_rewards: bytes
    exact_totals: bytes
    def __init__(self, reward_fns: _Optional[_Iterable[str]] = ..., rewards: _Optional[bytes] = ..., totals: _Optional[bytes] = ..., statuses: _Optional[_Iterable[_Union[RowStatus, str]]] = ..., errors: _Optional[_Iterable[_Union[ScoringError, _Mapping]]] = ..., extra_columns: _Optional[_Iterable[_Union[ExtraColumn, _Mapping]]] = ..., timings: _Optional[_Union[Timings, _Mapping]] = ..., exact_rewards: _Optional[bytes] = ..., exact_totals: _Optional[bytes] = ...) -> None: ...

class ScoringError(_message.Message):
    __slots__ = ("row_index", "reward_fn", "code", "message", "worker")
    ROW_INDEX_FIELD_NUMBER: _ClassVar[int]
    REWARD_FN_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    row_index: int
    reward_fn: str
    code: int
    message: str
    worker: str
    def __init__(self, row_index: _Optional[int] = ..., reward_fn: _Optional[str] = ..., code: _Optional[int] = ..., message: _Optional[str] = ..., worker: _Optional[str] = ...) -> None: ...

class ExtraColumn(_message.Message):
    __slots__ = ("name", "values")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    name: str
    values: bytes
    def __init__(self, name: _Optional[str] = ..., values: _Optional[bytes] = ...) -> None: ...

class Timings(_message.Message):
    __slots__ = ("queue_s", "decode_s", "score_s", "total_s")
    QUEUE_S_FIELD_NUMBER: _ClassVar[int]
    DECODE_S_FIELD_NUMBER: _ClassVar[int]
    SCORE_S_FIELD_NUMBER: _ClassVar[int]
    TOTAL_S_FIELD_NUMBER: _ClassVar[int]
    queue_s: float
    decode_s: float
    score_s: _containers.RepeatedScalarFieldContainer[float]
    total_s: float
    def __init__(self, queue_s: _Optional[float] = ..., decode_s: _Optional[float] = ..., score_s: _Optional[_Iterable[float]] = ..., total_s: _Optional[float] = ...) -> None: ...

class RewardFnInfo(_message.Message):
    __slots__ = ("name", "weight", "timeout_s", "required_columns", "whole_groups", "code_digest", "settings", "columns", "all_columns")
    class SettingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    REQUIRED_COLUMNS_FIELD_NUMBER: _ClassVar[int]
    WHOLE_GROUPS_FIELD_NUMBER: _ClassVar[int]
    CODE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    ALL_COLUMNS_FIELD_NUMBER: _ClassVar[int]
    name: str
    weight: float
    timeout_s: float
    required_columns: _containers.RepeatedScalarFieldContainer[str]
    whole_groups: bool
    code_digest: str
    settings: _containers.ScalarMap[str, str]
    columns: _containers.RepeatedScalarFieldContainer[str]
    all_columns: bool
    def __init__(self, name: _Optional[str] = ..., weight: _Optional[float] = ..., timeout_s: _Optional[float] = ..., required_columns: _Optional[_Iterable[str]] = ..., whole_groups: bool = ..., code_digest: _Optional[str] = ..., settings: _Optional[_Mapping[str, str]] = ..., columns: _Optional[_Iterable[str]] = ..., all_columns: bool = ...) -> None: ...

class ServiceInfo(_message.Message):
    __slots__ = ("reward_fns", "tokenizer_fingerprint", "slots", "max_message_bytes", "version", "rows_scored", "workers", "vocab_size", "draining", "calls_joined", "calls_refused", "queue_bytes", "memo_bytes", "rows_per_slot", "reward_fns_digest", "problem", "unusable_workers")
    REWARD_FNS_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ROWS_SCORED_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    CALLS_JOINED_FIELD_NUMBER: _ClassVar[int]
    CALLS_REFUSED_FIELD_NUMBER: _ClassVar[int]
    QUEUE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMO_BYTES_FIELD_NUMBER: _ClassVar[int]
    ROWS_PER_SLOT_FIELD_NUMBER: _ClassVar[int]
    REWARD_FNS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    UNUSABLE_WORKERS_FIELD_NUMBER: _ClassVar[int]
    reward_fns: _containers.RepeatedCompositeFieldContainer[RewardFnInfo]
    tokenizer_fingerprint: str
    slots: int
    max_message_bytes: int
    version: str
    rows_scored: int
    workers: int
    vocab_size: int
    draining: bool
    calls_joined: int
    calls_refused: int
    queue_bytes: int
    memo_bytes: int
    rows_per_slot: int
    reward_fns_digest: str
    problem: str
    unusable_workers: _containers.RepeatedCompositeFieldContainer[UnusableWorker]
    def __init__(self, reward_fns: _Optional[_Iterable[_Union[RewardFnInfo, _Mapping]]] = ..., tokenizer_fingerprint: _Optional[str] = ..., slots: _Optional[int] = ..., max_message_bytes: _Optional[int] = ..., version: _Optional[str] = ..., rows_scored: _Optional[int] = ..., workers: _Optional[int] = ..., vocab_size: _Optional[int] = ..., draining: bool = ..., calls_joined: _Optional[int] = ..., calls_refused: _Optional[int] = ..., queue_bytes: _Optional[int] = ..., memo_bytes: _Optional[int] = ..., rows_per_slot: _Optional[int] = ..., reward_fns_digest: _Optional[str] = ..., problem: _Optional[str] = ..., unusable_workers: _Optional[_Iterable[_Union[UnusableWorker, _Mapping]]] = ...) -> None: ...

class UnusableWorker(_message.Message):
    __slots__ = ("address", "reason")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    address: str
    reason: str
    def __init__(self, address: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...
