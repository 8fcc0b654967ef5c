from shardward.v1 import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ScoreRolloutsRequest(_message.Message):
    __slots__ = ("request_id", "rollouts", "step", "mode", "process_index", "tokenizer_fingerprint", "reward_fns_digest", "caller")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ROLLOUTS_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    PROCESS_INDEX_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    REWARD_FNS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    rollouts: _types_pb2.RolloutBatch
    step: int
    mode: _types_pb2.Mode
    process_index: int
    tokenizer_fingerprint: str
    reward_fns_digest: str
    caller: str
    def __init__(self, request_id: _Optional[str] = ..., rollouts: _Optional[_Union[_types_pb2.RolloutBatch, _Mapping]] = ..., step: _Optional[int] = ..., mode: _Optional[_Union[_types_pb2.Mode, str]] = ..., process_index: _Optional[int] = ..., tokenizer_fingerprint: _Optional[str] = ..., reward_fns_digest: _Optional[str] = ..., caller: _Optional[str] = ...) -> None: ...

class ScoreRolloutsResponse(_message.Message):
    __slots__ = ("request_id", "rewards", "row_ids")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    REWARDS_FIELD_NUMBER: _ClassVar[int]
    ROW_IDS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    rewards: _types_pb2.RewardBatch
    row_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, request_id: _Optional[str] = ..., rewards: _Optional[_Union[_types_pb2.RewardBatch, _Mapping]] = ..., row_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class RewardServiceGetInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RewardServiceGetInfoResponse(_message.Message):
    __slots__ = ("info",)
    INFO_FIELD_NUMBER: _ClassVar[int]
    info: _types_pb2.ServiceInfo
    def __init__(self, info: _Optional[_Union[_types_pb2.ServiceInfo, _Mapping]] = ...) -> None: ...
